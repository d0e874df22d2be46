"""RXNMapper's ALBERT: vectors and the mapping head are those of transformers on the same file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.fetch_models import fetch_model
from support.real import relative_difference
from support.recognised import Recognised

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

pytestmark = pytest.mark.real

WINDOW, LAYER, HEAD = 64, 10, 5
#: As RXNMapper cuts SMILES into tokens.
TOKEN = re.compile(
    r"(\[[^\]]+]|Br?|Cl?|N|O|S|P|F|I|b|c|n|o|s|p|\(|\)|\.|=|#|-|\+|\\|\/|:|~|@|\?|>>?|\*|\$"
    r"|\%[0-9]{2}|[0-9])"
)
REACTIONS = (
    "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1",
    "BrC.CO>>COC",
)


def tokens_of(reaction: str) -> list[str]:
    return ["[CLS]", *TOKEN.findall(reaction), "[SEP]"]


@pytest.fixture(scope="module")
def files() -> dict[str, Path]:
    return fetch_model("rxnmapper")


@pytest.fixture(scope="module")
def ours(files: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Recognised:
    weights = str(files["pytorch_model.bin"])
    directory = tmp_path_factory.mktemp("rxnmapper")
    return Recognised("rxnmapper", directory, weights=weights, window=WINDOW)


@pytest.fixture(scope="module")
def reactions(files: dict[str, Path]) -> dict[str, Array]:
    """Token ids and masks of the reactions, padded to the window."""
    vocabulary = files["vocab.txt"].read_text().splitlines()
    ids, mask = np.zeros((3, WINDOW), np.int32), np.zeros((3, WINDOW), bool)
    for record, reaction in enumerate(REACTIONS):
        tokens = tokens_of(reaction)
        ids[record, : len(tokens)] = [vocabulary.index(token) for token in tokens]
        mask[record, : len(tokens)] = True
    return {"inputs.0": ids, "inputs.1": mask}


@pytest.fixture(scope="module")
def expected(files: dict[str, Path], reactions: dict[str, Array]) -> dict[str, Array]:
    model = transformers.AlbertModel.from_pretrained(
        files["pytorch_model.bin"].parent, attn_implementation="eager"
    ).eval()
    ids, mask = (torch.from_numpy(array.astype(np.int64)) for array in reactions.values())
    with torch.no_grad():
        result = model(ids, attention_mask=mask, output_attentions=True)
    attention = result.attentions[LAYER][:, HEAD]
    return {"hidden": result.last_hidden_state.numpy(), "attention": attention.numpy()}


def test_equal_to_transformers(
    ours: Recognised,
    reactions: dict[str, Array],
    expected: dict[str, Array],
    record_property: Any,
) -> None:
    """Padding is less exact in transformers too; none of it is read."""
    found, mask = ours.run(reactions), reactions["inputs.1"]
    differences = {
        name: relative_difference(found[name][mask], expected[name][mask]) for name in expected
    }
    padding = [relative_difference(found[name], expected[name]) for name in expected]
    record_property("largest relative differences", differences)
    assert max(differences.values()) < 1e-5
    assert max(padding) < 1e-4


def test_bf16_products(ours: Recognised, reactions: dict[str, Array]) -> None:
    ours.check_bf16(reactions, rows=reactions["inputs.1"])


def test_the_head_maps_atoms(ours: Recognised, reactions: dict[str, Array]) -> None:
    """Atoms of a product look most at atoms of their own element before the reaction."""
    attention = ours.run(reactions)["attention"]
    same = []
    for record, reaction in enumerate(REACTIONS):
        tokens = tokens_of(reaction)
        middle = tokens.index(">>")
        for place in range(middle + 1, len(tokens)):
            if tokens[place].isalpha():
                before = [t if t.isalpha() else "" for t in tokens[:middle]]
                seen = np.where([bool(t) for t in before], attention[record, place, :middle], 0)
                same.append(before[int(seen.argmax())].upper() == tokens[place].upper())
    assert len(same) > 20
    assert np.mean(same) > 0.9
