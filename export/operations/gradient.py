"""What a model says of its gradients, which nothing but training has."""

from __future__ import annotations

from collections.abc import Sequence

from sexpgpu.export.graph.graph import Attributes
from sexpgpu.export.graph.types import ANY, Array
from sexpgpu.export.onnx.term import Term
from sexpgpu.export.operations.elementwise import ElementwiseFormula
from sexpgpu.export.operations.operation import operation
from sexpgpu.export.operations.signature import Operand, signature


@operation
class StopGradient(ElementwiseFormula):
    """x, which training takes for a constant: no gradient goes back through it.

    What rounds is trained as if it did not by `(+ x (stop-gradient (- (round x) x)))`, a
    straight-through estimate (Bengio, Léonard and Courville 2013,
    https://arxiv.org/abs/1308.3432).  A parameter that the loss reads by nothing else is not
    trained.

    ONNX: Identity; a model that runs alone is traced without it.
    """

    name = "stop-gradient"
    signature = signature(Operand("x", ANY))
    only_trains = True
    example = ("(stop-gradient (tensor (list 1.0 2.0)))", "[1.0 2.0]")

    def compute(self, arrays: Sequence[Array], attributes: Attributes) -> Array:
        return arrays[0]

    def formula(self, terms: Sequence[Term], attributes: Attributes) -> Term:
        return terms[0].apply("Identity")
