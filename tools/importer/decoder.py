"""Causal transformers with rms norms and rope: Llama, Qwen and Gemma, and how they differ."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, field

from sexpgpu.tools.importer.configuration import DEPTH_LIMIT, Configuration
from sexpgpu.tools.importer.forms import Form, atom, call
from sexpgpu.tools.importer.heads import add_classifier, add_span, head_of, shares_table
from sexpgpu.tools.importer.program import Draft, Knob
from sexpgpu.tools.importer.rope import Rope
from sexpgpu.tools.importer.source import Source

#: Tensors of older files that are computed anew.
_BUFFERS = (r".*rotary_emb\.inv_freq", r"rope_freqs\.weight")

_WINDOW = 128

#: Heads beside that of a language model.
_OTHER_HEADS = ("ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering")


@dataclass
class Local:
    """Layers that see a window: which, as a condition on `i`, and their rope where it is another.

    A condition of None is every layer.
    """

    window: int
    condition: Form | None
    rope: Rope | None = None


@dataclass
class Decoder:
    """What a family says of a decoder; the rest is the same in all of them."""

    name: str
    #: What transformers' classes begin with.
    family: str
    about: str
    rope: Rope
    head_dim: int
    activation: Form
    local: Local | None = None
    qkv_bias: bool = False
    out_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    #: Norms on both sides of attention and mlp.
    sandwich: bool = False
    #: What is added to the gain of a norm.
    norm_offset: float | None = None
    #: Tokens' vectors are multiplied by the root of their width.
    scaled_tokens: bool = False
    scale: float | None = None
    softcap: float | None = None
    final_softcap: float | None = None
    #: Whether the head is the table of tokens where the configuration does not say.
    tied: bool = False
    notes: list[str] = field(default_factory=list)

    def draft(self, source: Source) -> Draft:
        """The program's parts.  Raises E-IMPORT-003 for widths and counts that are none."""
        configuration = source.configuration
        prefix = source.prefix(("model.", "transformer.", ""), "embed_tokens.weight")
        below = "TextModel" if self.family == "Gemma3" else "Model"
        others = [below.replace("Model", head) for head in _OTHER_HEADS]
        kind = head_of(source, self.family, ("ForCausalLM", below, *others), self.notes)
        has_head = kind == "ForCausalLM"
        table = "token_embd.weight" if source.is_gguf else f"{prefix}embed_tokens.weight"
        head = "output" if source.is_gguf else "lm_head"
        own_head = has_head and not shares_table(source, head, table, self.tied, self.notes)
        knobs = self._knobs(configuration)
        draft = Draft(
            self.name,
            self.about,
            knobs,
            call("def", "record", ["fields", ":tokens", ["list", "i32", "window"]]),
            self._parts(source, own_head, has_head),
            ["ids"],
            self._body(own_head, has_head),
            self._renames(source, prefix, own_head, has_head),
            definitions=[
                self._norm_function(source),
                self._block(source, {knob.name for knob in knobs}),
            ],
            buffers=_BUFFERS,
            biased=self.qkv_bias or self.out_bias or self.mlp_bias,
            notes=self.notes,
            longest=self._limit(),
        )
        if kind.endswith("QuestionAnswering"):
            add_span(draft, self._hidden(["tokens", "ids"]))
        elif kind in others:
            add_classifier(source, draft, "score", self._hidden(["tokens", "ids"]))
        elif not has_head:
            draft.tells("tokens' vectors")
        return draft

    def _knobs(self, configuration: Configuration) -> list[Knob]:
        heads = configuration.whole("num_attention_heads", None)
        dim = configuration.whole("hidden_size", None)
        kv_heads = configuration.whole("num_key_value_heads", heads)
        longest = max(configuration.whole("max_position_embeddings", 2048), self.rope.longest)
        about = f"tokens that the model sees, at most {longest:,}"
        knobs = [
            Knob("window", min(_WINDOW, longest), about),
            Knob("vocab", configuration.whole("vocab_size", None), "tokens that there are"),
            Knob("dim", dim, "width of the residual stream"),
            Knob("depth", depth_of(configuration), "layers"),
            Knob("heads", heads),
            Knob("kv-heads", kv_heads, "heads of keys and values"),
            Knob("head-dim", self.head_dim),
            Knob("hidden", configuration.whole("intermediate_size", None), "width of an mlp"),
        ]
        spare = {"kv-heads"} if kv_heads == heads else set()
        if self.head_dim * heads == dim:
            spare.add("head-dim")
        return [knob for knob in knobs if knob.name not in spare]

    def _limit(self) -> int | None:
        """How many positions the ropes hold for, where some hold for some only."""
        ropes = [self.rope, *([self.local.rope] if self.local and self.local.rope else [])]
        return min((rope.limit for rope in ropes if rope.limit is not None), default=None)

    def _parts(self, source: Source, own_head: bool, has_head: bool) -> list[Form]:
        tied = has_head and not own_head
        block: Form = ["block"]
        if self.local is not None and self.local.condition is not None:
            block = ["block", self.local.condition]
        table: Form = ["param", ["list", "vocab", "dim"]] if tied else ["embedding", "vocab", "dim"]
        parts: list[Form] = [
            "tokens", table,
            "blocks", ["for", ["i", ["range", "depth"]], block],
            "norm", self._norm(),
        ]  # fmt: skip
        if own_head:
            parts += ["head", call("linear", "dim", "vocab", bias=False, transposed=True)]
        return parts

    def _norm(self) -> Form:
        return ["norm", "dim"] if self.qk_norm else ["norm"]

    def _norm_function(self, source: Source) -> Form:
        """What makes a norm, of any width where heads are normalised too."""
        epsilon = source.configuration.number("rms_norm_eps", 1e-6)
        width = "width" if self.qk_norm else "dim"
        norm = call("rms-norm", width, epsilon=epsilon, offset=self.norm_offset)
        return ["defn", "norm", ["width"] if self.qk_norm else [], norm]

    def _block(self, source: Source, knobs: Set[str]) -> Form:
        """What makes a layer; where some are local it is told whether this one is."""
        norm = self._norm()
        interleaved = source.is_gguf and source.configuration.word("model_type", "") == "llama"
        attention = call(
            "self-attention", "dim", "heads",
            kv_heads="kv-heads" if "kv-heads" in knobs else None,
            head_dim="head-dim" if "head-dim" in knobs else None,
            causal=True,
            bias=self.qkv_bias,
            out_bias=self.out_bias if self.out_bias != self.qkv_bias else None,
            rotary=True,
            base=self._base(),
            rotary_options=self._rotary_options(),
            interleaved=interleaved or None,
            window=None if self.local is None else self._by_layer("nil", atom(self.local.window)),
            qk_norm="norm" if self.qk_norm else None,
            scale=self.scale,
            softcap=self.softcap,
            transposed=True,
        )  # fmt: skip
        mlp = call(
            "swiglu", "dim", "hidden",
            bias=self.mlp_bias or None,
            activation=None if self.activation == "silu" else self.activation,
            transposed=True,
        )  # fmt: skip
        layer: Form = call("pre-norm-block", norm, attention, norm, mlp)
        if self.sandwich:
            layer = call("sandwich-block", norm, attention, norm, norm, mlp, norm)
        some = self.local is not None and self.local.condition is not None
        return ["defn", "block", ["local"] if some else [], layer]

    def _base(self) -> Form:
        local = self.rope if self.local is None or self.local.rope is None else self.local.rope
        return self._by_layer(atom(self.rope.base), atom(local.base))

    def _rotary_options(self) -> Form | None:
        local = self.rope if self.local is None or self.local.rope is None else self.local.rope
        here, there = self.rope.options(), local.options()
        if here is None and there is None:
            return None
        return self._by_layer(here or ["list"], there or ["list"])

    def _by_layer(self, everywhere: Form, local: Form) -> Form:
        """What local layers may have another of."""
        if self.local is None or local == everywhere:
            return everywhere
        return local if self.local.condition is None else ["if", "local", local, everywhere]

    def _hidden(self, x: Form) -> Form:
        """What the layers make of tokens' vectors `x`."""
        if self.scaled_tokens:
            x = ["*", x, ["sqrt", "dim"]]
        return ["norm", ["through", "blocks", x]]

    def _body(self, own_head: bool, has_head: bool) -> Form:
        tied = has_head and not own_head
        x = self._hidden(["take", "tokens", "ids"] if tied else ["tokens", "ids"])
        if not has_head:
            return call("list", hidden=x)
        x = ["head", x] if own_head else ["matmul", x, ["transpose", "tokens"]]
        if self.final_softcap is not None:
            cap = atom(self.final_softcap)
            x = ["*", cap, ["tanh", ["/", x, cap]]]
        return x

    def _renames(
        self, source: Source, prefix: str, own_head: bool, has_head: bool
    ) -> dict[str, str]:
        names = _GGUF if source.is_gguf else {**_LAYERS, **(_SANDWICH if self.sandwich else _PLAIN)}
        renames = {"tokens.w": "token_embd.weight", "blocks": "blk"}
        if not source.is_gguf:
            renames = {"tokens.w": f"{prefix}embed_tokens.weight", "blocks": f"{prefix}layers"}
        if has_head and not own_head:
            renames = {"tokens": renames.pop("tokens.w"), **renames}
        absent = [] if self.qk_norm else ["attention.q-norm", "attention.k-norm"]
        absent += [] if self.sandwich else ["attention-after", "mlp-after"]
        renames |= {part: name for part, name in names.items() if part not in absent}
        renames["norm"] = "output_norm" if source.is_gguf else f"{prefix}norm"
        if own_head:
            renames["head"] = "output" if source.is_gguf else "lm_head"
        return renames


_LAYERS = {
    "attention-norm": "input_layernorm",
    "attention.q": "self_attn.q_proj",
    "attention.k": "self_attn.k_proj",
    "attention.v": "self_attn.v_proj",
    "attention.out": "self_attn.o_proj",
    "attention.q-norm": "self_attn.q_norm",
    "attention.k-norm": "self_attn.k_norm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
_PLAIN = {"mlp-norm": "post_attention_layernorm"}
_SANDWICH = {
    "attention-after": "post_attention_layernorm",
    "mlp-norm": "pre_feedforward_layernorm",
    "mlp-after": "post_feedforward_layernorm",
}
_GGUF = {
    "attention-norm": "attn_norm",
    "attention.q": "attn_q",
    "attention.k": "attn_k",
    "attention.v": "attn_v",
    "attention.out": "attn_output",
    "attention.q-norm": "attn_q_norm",
    "attention.k-norm": "attn_k_norm",
    "attention-after": "post_attention_norm",
    "mlp-norm": "ffn_norm",
    "mlp.gate": "ffn_gate",
    "mlp.up": "ffn_up",
    "mlp.down": "ffn_down",
    "mlp-after": "post_ffw_norm",
}


def head_dim_of(configuration: Configuration, default: int | None = None) -> int:
    """The width of a head: `head_dim`, or else the width divided among them."""
    dim = configuration.whole("hidden_size", None)
    heads = configuration.whole("num_attention_heads", None)
    head_dim = configuration.optional_whole("head_dim", default)
    if head_dim is None and dim % heads:
        configuration.wrong("num_attention_heads", f"a number that divides hidden_size, {dim}")
    return head_dim or dim // heads


def depth_of(configuration: Configuration) -> int:
    """How many layers there are."""
    return configuration.whole("num_hidden_layers", None, most=DEPTH_LIMIT)


def layers_that_see_a_window(kinds: Sequence[str]) -> Form | None:
    """A condition on `i` that holds for "sliding_attention"; None where it holds for every one."""
    slides = [kind == "sliding_attention" for kind in kinds]
    if all(slides):
        return None
    first = slides.index(True)
    if first and all(slides[first:]):
        return ["<=", atom(first), "i"]
    period = slides.index(False) + 1
    if slides == [bool((i + 1) % period) for i in range(len(slides))]:
        return ["<", "0", ["mod", ["+", "i", "1"], atom(period)]]
    return ["nth", ["list", *map(atom, slides)], "i"]
