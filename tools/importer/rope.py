"""How a configuration turns queries and keys by their position."""

from __future__ import annotations

from dataclasses import dataclass, field

from sexpgpu.tools.importer.configuration import Configuration
from sexpgpu.tools.importer.forms import Form, atom


@dataclass(frozen=True)
class Rope:
    """The base, and how its frequencies are scaled: attributes of the operation `rotary`."""

    base: float
    scaling: dict[str, float | int | str] = field(default_factory=dict)

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
    older = configuration.section("rope_scaling")
    section = older or configuration.section("rope_parameters")
    return Rope(base) if section is None else scaled_rope(section, base, configuration)


def scaled_rope(section: Configuration, base: float, whole: Configuration) -> Rope:
    """The rope of one set of parameters; `whole` is the configuration that they are part of."""
    base = section.number("rope_theta", base)
    section.require("partial_rotary_factor", 1, why="heads are turned in part only")
    key = "rope_type" if "rope_type" in section else "type"
    section.take("type")
    kind = section.word(key, "default")
    if kind == "default":
        return Rope(base)
    if kind == "linear":
        return Rope(base, {"scaling": ":linear", "factor": section.number("factor", None)})
    if kind != "llama3":
        section.unsupported(
            key,
            "the rope is of a type that `rotary` does not have",
            expected="default, linear or llama3",
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


def _original(section: Configuration, whole: Configuration) -> int:
    """Positions that the model was first trained on, as transformers finds them."""
    key = "original_max_position_embeddings"
    if key in whole:
        return whole.whole(key, None)
    return section.whole(key, whole.whole("max_position_embeddings", 2048))
