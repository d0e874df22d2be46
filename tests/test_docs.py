"""What the documents show holds: programs compile, expressions give what stands beside them.

A block of `lisp` that defines `model` is a whole program.  In any other, `;=>` stands after an
expression, or under it, and is followed by its value, printed as `support.expressions` prints.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from sexpgpu.export.graph.document import read_model
from sexpgpu.export.language.data import write
from sexpgpu.export.language.reader import read
from sexpgpu.schemas.codes import CODES
from support.expressions import shown_value
from support.programs import traced

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: Pages with blocks that show how a call is written, which is no program.
GENERATED = ("operations.md", "library.md", "layers.md", "errors.md")

_BLOCK = re.compile(r"^```lisp\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A block of `lisp` and where it stands."""

    page: str
    line: int
    text: str


def _blocks() -> list[Block]:
    return [
        Block(page.name, text.count("\n", 0, match.start()) + 1, match[1])
        for page in PAGES
        for text in [page.read_text("utf-8")]
        for match in _BLOCK.finditer(text)
    ]


BLOCKS = _blocks()
PROGRAMS = [block for block in BLOCKS if "(def model" in block.text]
EXPRESSIONS = [block for block in BLOCKS if ";=>" in block.text and block.page not in GENERATED]


def _name(block: Block) -> str:
    return f"{block.page}:{block.line}"


@pytest.mark.parametrize("block", PROGRAMS, ids=_name)
def test_a_program_compiles_and_runs_alone(block: Block) -> None:
    graph, _ = traced(block.text)
    assert graph.nodes


@pytest.mark.parametrize("block", EXPRESSIONS, ids=_name)
def test_an_expression_gives_what_stands_beside_it(block: Block) -> None:
    before: list[str] = []
    pieces = re.split(r";=> *(.*)\n", block.text)
    for text, shown in zip(pieces[::2], pieces[1::2], strict=False):
        *definitions, expression = [write(datum) for datum in read(text, block.page)]
        before += definitions
        assert shown_value(expression, before="\n".join(before)) == shown
    assert not pieces[-1].strip(), "something stands after the last value"


@pytest.mark.parametrize("page", [page for page in PAGES if page.name not in GENERATED], ids=str)
def test_every_block_of_lisp_is_tested(page: Path) -> None:
    tested = {*PROGRAMS, *EXPRESSIONS}
    assert [_name(b) for b in BLOCKS if b.page == page.name and b not in tested] == []


def test_the_model_json_of_the_formats_is_read() -> None:
    text = (ROOT / "docs" / "formats.md").read_text("utf-8")
    block = re.search(r'^    \{\n      "version".*?^    \}$', text, re.MULTILINE | re.DOTALL)
    assert block
    model = read_model(block[0].encode(), "formats.md")
    assert (model.slug, model.step, list(model.graph.weights)) == ("tiny", 20, ["bias"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in _LINK.findall(page.read_text("utf-8")):
        if "://" in target:
            continue
        name, _, heading = target.partition("#")
        path = page.parent / name if name else page
        assert path.exists(), target
        if heading:
            titles = re.findall(r"^#+ (.*)$", path.read_text("utf-8"), re.MULTILINE)
            assert heading in map(_anchor, titles), target


def _anchor(title: str) -> str:
    """What a heading is called in links: small, without punctuation, hyphens for spaces."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_code_that_is_named_exists(page: Path) -> None:
    named = set(re.findall(r"\bE-[A-Z]+-\d{3}\b", page.read_text("utf-8")))
    assert named <= set(CODES)
