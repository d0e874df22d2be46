"""A runtime: what is installed for it, what runs a case in it, and the reasons that are known.

Each is a file `runtimes/<name>.toml` and a runner beside it: `<name>_runner.py` is called by
`exchange.py`, `<name>_runner.mjs` by `exchange.mjs`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.tools.portability import ROOT
from sexpgpu.tools.portability.cases import Case, Change

FOLDER = Path(__file__).resolve().parent / "runtimes"
PAGES = ROOT / "docs" / "runtimes"


@dataclass(frozen=True, slots=True)
class Reason:
    """Why a runtime fails, of which `error` is a regular expression that its words match.

    It holds for the `version` that it was found with alone: another is to be looked at anew.
    Where its words do not say all, it is a reason only in `examples`, in `profiles`, or where the
    file has one of `operators`.
    `change` is how the export gets round it, where there is such a way.
    """

    key: str
    error: str
    because: str
    instead: str = ""
    version: str = ""
    examples: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()
    operators: tuple[str, ...] = ()
    change: Change | None = None

    def explains(self, error: str, version: str, case: Case) -> bool:
        """Whether this is why a case fails with such words."""
        return (
            (not version or version.startswith(self.version))
            and (not self.examples or case.name in self.examples)
            and (not self.profiles or case.form.profile in self.profiles)
            and re.search(self.error, error) is not None
            and (not self.operators or not case.operators.isdisjoint(self.operators))
        )


@dataclass(frozen=True, slots=True)
class Runtime:
    """`fused` is whether it claims the operators of the fused profile.

    Of `programs` it needs one on the path, which is not installed for it.  `page` says how an
    export is run in it.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    programs: tuple[str, ...]
    runner: Path
    fused: bool
    seconds: int
    page: Path
    reasons: tuple[Reason, ...]

    @property
    def is_node(self) -> bool:
        """Whether it is JavaScript's, else it is Python's."""
        return self.runner.suffix == ".mjs"


def read_runtimes(folder: Path = FOLDER) -> dict[str, Runtime]:
    """Every runtime of the folder by name, in the order of `rank`."""
    found = [(path, tomllib.loads(path.read_text())) for path in folder.glob("*.toml")]
    found.sort(key=lambda each: (each[1].get("rank", 100), each[0].name))
    return {path.stem: _runtime(path, data) for path, data in found}


def _runtime(path: Path, data: dict[str, Any]) -> Runtime:
    runners = [path.with_name(f"{path.stem}_runner{suffix}") for suffix in (".py", ".mjs")]
    return Runtime(
        name=path.stem,
        title=data["title"],
        packages=tuple(data["packages"]),
        programs=tuple(data.get("programs", ())),
        runner=next(runner for runner in runners if runner.exists()),
        fused=data.get("fused", True),
        seconds=data.get("seconds", 900),
        page=PAGES / f"{data.get('page', path.stem)}.md",
        reasons=tuple(
            Reason(
                key=each["key"],
                error=each["error"],
                because=" ".join(each["because"].split()),
                instead=" ".join(each.get("instead", "").split()),
                version=data["version"],
                examples=tuple(each.get("examples", ())),
                profiles=tuple(each.get("profiles", ())),
                operators=tuple(each.get("operators", ())),
                change=each.get("change"),
            )
            for each in data.get("reasons", ())
        ),
    )
