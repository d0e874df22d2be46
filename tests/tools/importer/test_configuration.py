"""Configurations are strangers': every key is held to its kind, and nothing changes in silence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from sexpgpu.export.storage.sources import open_source
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.families import FAMILIES, draft_of
from sexpgpu.tools.importer.source import Source


def configuration(**values: Any) -> Configuration:
    return Configuration(values, "config.json")


def raised(call: Any, *arguments: Any, **options: Any) -> SexpgpuError:
    with pytest.raises(SexpgpuError) as caught:
        call(*arguments, **options)
    return caught.value


def test_whole_numbers() -> None:
    values = configuration(a=3, b=4.0, c=None, d=0, e=True, f="3", g=2**40, h=1.5)
    assert (values.whole("a", None), values.whole("b", None)) == (3, 4)
    assert (values.whole("c", 7), values.whole("none", 8)) == (7, 8)
    assert values.whole("d", None, least=0) == 0
    for key in "cdefgh":
        assert raised(values.whole, key, None).code == "E-IMPORT-003"
    error = raised(values.whole, "none", None)
    assert error.message == "the configuration has no `none`"
    assert values.optional_whole("c", 5) is None
    assert (values.optional_whole("none"), values.optional_whole("none", 5)) == (None, 5)


def test_numbers_flags_and_words() -> None:
    values = configuration(a=2, b=0.5, c=True, d=float("nan"), e=-1, f="x", g=["x"], h=[1], i={})
    assert (values.number("a", None), values.number("b", None)) == (2.0, 0.5)
    assert (values.flag("c", False), values.flag("none", True)) == (True, True)
    assert (values.word("f", ""), values.words("g"), values.words("none")) == ("x", ["x"], [])
    assert (values.section("none"), values.section("i")) == (None, None)
    wrong = [
        *((values.number, key, None) for key in "cdef"),
        *((values.flag, key, True) for key in "abf"),
        *((values.word, key, "") for key in "abc"),
        *((values.words, key) for key in "afh"),
        *((values.section, key) for key in "afg"),
    ]
    for call, *arguments in wrong:
        assert raised(call, *arguments).code == "E-IMPORT-003"


def test_what_nobody_read_is_left_over() -> None:
    values = Configuration(
        {"a": 1, "b": 2, "c": None, "d": {"e": 1, "f": 2}, "g": 3}, "x.gguf", {"g": "llama.g"}
    )
    values.whole("a", None)
    section = values.section("d")
    assert section is not None
    section.take("e")
    assert values.unread({"b"}) == ["llama.g", "d.f"]


def test_a_value_that_changes_the_numbers_is_refused() -> None:
    values = configuration(kind="relative")
    values.require("other", False, why="it cannot be")
    error = raised(values.require, "kind", "absolute", why="positions are relative")
    assert (error.code, error.message) == ("E-IMPORT-004", "positions are relative")
    assert (error.came, error.expected) == ('kind "relative"', '"absolute"')


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Makes a source of a configuration, whose file of weights holds next to nothing."""
    import numpy as np

    path = tmp_path_factory.mktemp("weights") / "model.safetensors"
    save_file({"x": np.zeros(1, np.float32)}, path)
    weights = open_source(path)
    return lambda values: Source("m", Configuration(values, "config.json"), weights, "transformers")


SIZES = {"hidden_size": 8, "num_attention_heads": 2, "num_hidden_layers": 2,
         "intermediate_size": 9, "vocab_size": 5, "n_embd": 8, "n_head": 2}  # fmt: skip

#: A family, and a value that no program is written for.
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("llama", {"hidden_act": "xielu"}),
    ("llama", {"hidden_act": "gelu_10"}),
    ("llama", {"rope_interleaved": True}),
    ("llama", {"partial_rotary_factor": 0.5}),
    ("llama", {"rope_parameters": {"factor": 2, "partial_rotary_factor": 0.5}}),
    ("llama", {"quantization_config": {"quant_method": "gptq"}}),
    *(("llama", {"rope_scaling": {"rope_type": kind, "factor": 2.0}})
      for kind in ("longrope", "su", "proportional")),
    ("qwen2", {"rope_scaling": {"type": "mrope"}}),
    ("qwen2", {"rope_scaling": {"type": "linear", "factor": 2.0},
               "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    ("qwen3", {"rope_parameters": {"full_attention": {"rope_type": "default"}}}),
    ("qwen2", {"use_mrope": True}),
    ("qwen2", {"layer_types": ["full_attention", "linear_attention"]}),
    ("qwen3", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("mistral", {"layer_types": ["full_attention", "sliding_attention"]}),
    ("gemma", {"use_bidirectional_attention": True}),
    ("gemma3_text", {"attn_logit_softcapping": 50.0}),
    ("gpt2", {"add_cross_attention": True}),
    ("bert", {"position_embedding_type": "relative_key"}),
    ("bert", {"is_decoder": True}),
    ("bert", {"add_cross_attention": True}),
    ("roberta", {"position_embedding_type": "relative_key"}),
    ("xlm-roberta", {"is_decoder": True}),
    ("camembert", {"add_cross_attention": True}),
    ("distilbert", {"activation": "mish"}),
    ("albert", {"position_embedding_type": "relative_key_query"}),
    ("vit", {"pooler_act": "softmax"}),
]  # fmt: skip


@pytest.mark.parametrize(("family", "values"), REFUSED, ids=str)
def test_what_no_program_is_written_for(source: Any, family: str, values: dict[str, Any]) -> None:
    error = raised(draft_of, source({**SIZES, "model_type": family, **values}))
    assert error.code == "E-IMPORT-004"
    assert error.came is not None
    assert next(iter(values)) in error.came or "rope" in error.came or "factor" in error.came


@pytest.mark.parametrize(
    ("family", "values"),
    [
        ("llama", {"hidden_size": None}),
        ("llama", {"num_attention_heads": 3}),
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 2.0}}),
        ("llama", {"rope_theta": "much"}),
        ("llama", {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}),
        ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
        *(
            (
                "qwen2",
                {
                    "max_position_embeddings": 64,
                    "rope_scaling": {"type": "yarn", "factor": 2.0, **wrong},
                },
            )
            for wrong in (
                {"factor": "2"},
                {"factor": 0},
                {"truncate": 1},
                {"beta_fast": -1},
                {"attention_factor": 0},
                {"mscale": "x"},
                {"original_max_position_embeddings": 0},
            )
        ),
        ("llama", {"num_hidden_layers": 10**6}),
        ("qwen3", {"layer_types": ["full_attention"]}),
        ("gemma2", {"query_pre_attn_scalar": 0}),
        ("vit", {"image_size": 4, "patch_size": 5}),
        ("vit", {"image_size": [224, 224]}),
        ("bert", {"architectures": "BertModel"}),
        ("roberta", {"pad_token_id": -1}),
        ("roberta", {"pad_token_id": 511}),
        ("distilbert", {"n_layers": "six"}),
    ],
    ids=str,
)
def test_damaged_values(source: Any, family: str, values: dict[str, Any]) -> None:
    error = raised(draft_of, source({**SIZES, "model_type": family, **values}))
    assert error.code == "E-IMPORT-003"


@pytest.mark.parametrize(
    ("values", "came"),
    [
        ({}, "model_type nothing"),
        ({"model_type": "lama"}, "model_type lama"),
        ({"model_type": "bert", "architectures": ["BertForMultipleChoice"]},
         "BertForMultipleChoice"),
        ({"model_type": "albert", "architectures": ["AlbertForMultipleChoice"]},
         "AlbertForMultipleChoice"),
        ({"model_type": "roberta", "architectures": ["RobertaForMultipleChoice"]},
         "RobertaForMultipleChoice"),
        ({"model_type": "distilbert", "architectures": ["BertModel"]}, "BertModel"),
        ({"model_type": "vit", "architectures": ["ViTForMaskedImageModeling"]},
         "ViTForMaskedImageModeling"),
        ({"model_type": "llama", "architectures": ["LlamaForImages"]},
         "LlamaForImages"),
        ({"model_type": "gpt2", "architectures": ["GPT2DoubleHeadsModel"]},
         "GPT2DoubleHeadsModel"),
    ],
    ids=str,
)  # fmt: skip
def test_families_and_heads_that_are_not_known(
    source: Any, values: dict[str, Any], came: str
) -> None:
    error = raised(draft_of, source({**SIZES, **values}))
    assert (error.code, error.came) == ("E-IMPORT-002", came)
    assert error.expected
    if "architectures" in values:
        assert error.help is not None
        assert error.help.partition("--as ")[2] in error.expected.split(", ")


JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5),
    st.lists(st.integers(), max_size=3), st.dictionaries(st.text(max_size=3), st.integers()),
)  # fmt: skip
KEYS = [
    "hidden_size", "num_attention_heads", "num_hidden_layers", "head_dim", "rope_theta",
    "rope_scaling", "rope_parameters", "layer_types", "sliding_window", "hidden_act", "n_embd",
    "tie_word_embeddings", "architectures", "type_vocab_size", "image_size", "n_inner",
    "num_hidden_groups", "embedding_size", "attention_bias", "rms_norm_eps", "layer_norm_eps",
    "query_pre_attn_scalar", "final_logit_softcapping", "sliding_window_pattern", "patch_size",
    "pad_token_id", "dim", "n_layers", "max_position_embeddings",
]  # fmt: skip


@given(
    family=st.sampled_from(list(FAMILIES)),
    values=st.dictionaries(st.sampled_from(KEYS), JUNK, max_size=3),
)
def test_whatever_a_configuration_says_a_program_or_an_error_comes_of_it(
    source: Any, family: str, values: dict[str, Any]
) -> None:
    code, text = "", ""
    try:
        text = draft_of(source({**SIZES, "model_type": family, **values})).text("w", "m")
    except SexpgpuError as error:
        code = error.code
    assert code.startswith("E-IMPORT-") or text.startswith("; m: a")
