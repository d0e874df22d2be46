"""How a configuration turns queries and keys by their position."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from sexpgpu.tools.importer.configuration import WHOLE_LIMIT, Configuration
from sexpgpu.tools.importer.forms import Form, atom


@dataclass(frozen=True)
class Rope:
    """The base, and how its frequencies are scaled: attributes of the operation `rotary`.

    `longest` is how many positions it is stretched to; `limit` how many it holds for, where further
    ones would turn in another way.
    """

    base: float
    scaling: dict[str, float | int | str] = field(default_factory=dict)
    longest: int = 0
    limit: int | None = None

    def options(self) -> Form | None:
        """`:rotary-options` of self-attention; None where there are none."""
        if not self.scaling:
            return None
        items = ["list"]
        for key, value in self.scaling.items():
            items += [f":{key}", value if isinstance(value, str) else atom(value)]
        return items


def rope_of(configuration: Configuration) -> Rope:
    """The rope of all layers: `rope_parameters`, or `rope_theta` and `rope_scaling` as before.

    Raises E-IMPORT-004 for a type that the operation `rotary` does not have.
    """
    base = configuration.number("rope_theta", 10000.0)
    configuration.require("partial_rotary_factor", 1, why="heads are turned in part only")
    found = [configuration.section(key) for key in ("rope_scaling", "rope_parameters")]
    ropes = [scaled_rope(section, base, configuration) for section in found if section]
    if len(ropes) > 1 and ropes[0] != ropes[1]:
        # transformers takes the former, and loses the base that stands in the latter
        configuration.unsupported(
            "rope_scaling",
            "the rope is said twice, and not alike",
            expected="what it says in `rope_parameters`, which has the base too",
        )
    return ropes[0] if ropes else Rope(base)


def scaled_rope(section: Configuration, base: float, whole: Configuration) -> Rope:
    """The rope of one set of parameters; `whole` is the configuration that they are part of."""
    base = section.number("rope_theta", base)
    for key in ("full_attention", "sliding_attention"):
        section.require(key, None, why="layers of some kinds have a rope of their own")
    section.require("partial_rotary_factor", 1, why="heads are turned in part only")
    key = "rope_type" if "rope_type" in section else "type"
    section.take("type")
    kind = section.word(key, "default")
    if kind == "default":
        return Rope(base)
    if kind == "linear":
        return Rope(base, {"scaling": ":linear", "factor": section.number("factor", None)})
    if kind == "yarn":
        return _yarn(section, base, whole)
    if kind == "dynamic":
        # the base grows with a text that is longer than this; until then it is the default rope
        section.number("factor", None)
        return Rope(base, limit=whole.whole("max_position_embeddings", None))
    if kind != "llama3":
        section.unsupported(
            key,
            "the rope is of a type that `rotary` does not have",
            expected="default, linear, dynamic, yarn or llama3",
        )
    return Rope(
        base,
        {
            "scaling": ":llama3",
            "factor": section.number("factor", None),
            "low": section.number("low_freq_factor", None),
            "high": section.number("high_freq_factor", None),
            "original": _original(section, whole),
        },
    )


def _yarn(section: Configuration, base: float, whole: Configuration) -> Rope:
    """Peng et al. 2023; what is not given is as transformers has it."""
    original = _original(section, whole)
    factor = (
        whole.whole("max_position_embeddings", None) / original
        if section.is_null("factor")
        else section.number("factor", None)
    )
    scaling: dict[str, float | int | str] = {
        "scaling": ":yarn",
        "factor": factor,
        "original": original,
    }
    for key, default in (("beta_fast", 32.0), ("beta_slow", 1.0)):
        if (value := section.number(key, default)) != default:
            scaling[key.replace("_", "-")] = value
    if not section.flag("truncate", True):
        scaling["truncate"] = False
    if (gain := _attention_factor(section, factor)) is not None:
        scaling["attention-factor"] = gain
    return Rope(base, scaling, longest=math.floor(min(original * factor, WHOLE_LIMIT)))


def _attention_factor(section: Configuration, factor: float) -> float | None:
    """What cosines and sines are multiplied by, where it is not what the factor alone gives."""
    given = section.optional_number("attention_factor")
    one, all_dims = (section.optional_number(key) for key in ("mscale", "mscale_all_dim"))
    if given is not None or one is None or all_dims is None:
        return given
    if factor <= 1:
        return None
    return (0.1 * one * math.log(factor) + 1) / (0.1 * all_dims * math.log(factor) + 1)


def _original(section: Configuration, whole: Configuration) -> int:
    """Positions that the model was first trained on, as transformers finds them."""
    key = "original_max_position_embeddings"
    if key in whole:
        return whole.whole(key, None)
    if key in section:
        return section.whole(key, None)
    return whole.whole("max_position_embeddings", None)
