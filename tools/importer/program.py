"""The program of an imported model: its parts, and their text."""

from __future__ import annotations

from dataclasses import dataclass, field

from sexpgpu.tools.importer.forms import WIDTH, Form, atom, call, lay_out


@dataclass(frozen=True)
class Knob:
    """A knob: its name, its value, and what it is, in a few words."""

    name: str
    value: int | float | str
    about: str = ""

    def form(self) -> Form:
        about = [atom(self.about)] if self.about else []
        return call("defknob", self.name, atom(self.value), *about)


@dataclass
class Draft:
    """What a family writes of a model.

    `about` is what the model is, a sentence; `knobs` are those of the configuration, without the
    weights' path.  `steps` are names of what is computed and how, in turn, and `body` is what the
    model gives of them.  `renames` are names of parts and what stands for them in the file, without
    what every family has in common.  `buffers` are regular expressions of tensors in the file that
    are no weights.
    """

    name: str
    about: str
    knobs: list[Knob]
    record: Form
    parts: list[Form]
    inputs: list[str]
    body: Form
    renames: dict[str, str]
    steps: list[Form] = field(default_factory=list)
    prepare: Form | None = None
    definitions: list[Form] = field(default_factory=list)
    buffers: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)
    #: What the file calls gains and shifts of norms: of old ones gamma and beta.
    norm_names: tuple[str, str] = ("weight", "bias")
    #: The longest window that the model is the same for, where a longer one has to be refused.
    longest: int | None = None
    #: Whether any linear layer has a bias.
    biased: bool = True

    def tells(self, what: str) -> None:
        """Says in `about` what the model gives, in place of what it said."""
        self.about = f"{self.about.partition(':')[0]}: {what}"

    def text(self, weights: str, of: str) -> str:
        """The program, whose weights are in a file; `of` is the name of the whole."""
        knob = Knob("weights", weights, f"of {of}")
        model = call("defmodel", self.name, [], ["parts", *self.parts])
        body: Form = ["let", self.steps, self.body] if self.steps else self.body
        model.append(["apply", self.inputs, *self._checks(), body])
        loaded = call("load-from", "weights", [self.name], frozen=True, rename=self._table())
        blocks = [
            _comment(f"{of}: {self.about}. Written by sexpgpu import."),
            "\n".join(lay_out(k.form()) for k in [knob, *self.knobs]),
            lay_out(self.record),
            *([lay_out(self.prepare)] if self.prepare else []),
            *map(lay_out, self.definitions),
            lay_out(model),
            lay_out(["def", "model", loaded]),
        ]
        return "\n\n".join(blocks) + "\n"

    def _checks(self) -> list[Form]:
        if self.longest is None:
            return []
        why = f"the rope is another for texts of more than {self.longest} tokens"
        return [["assert", ["<=", "window", atom(self.longest)], atom(why)]]

    def _table(self) -> Form:
        gain, shift = self.norm_names
        common = {"w": "weight", **({"b": "bias"} if self.biased else {}), "scale": gain}
        if shift != "bias":
            common["bias"] = shift
        items = {**self.renames, **common}
        return ["list", *(atom(text) for pair in items.items() for text in pair)]


def _comment(text: str) -> str:
    """A comment of some lines."""
    lines, current = list[str](), ";"
    for word in text.split():
        if len(current) + 1 + len(word) > WIDTH:
            lines.append(current)
            current = ";"
        current += f" {word}"
    return "\n".join([*lines, current])
