"""Writing an export: model.json, params.safetensors and model.onnx, whole or not at all."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from sexpgpu.export.graph.document import ModelFile, write_model
from sexpgpu.export.graph.graph import Graph
from sexpgpu.export.language.recording import producer
from sexpgpu.export.onnx.build import BuildOptions, build_model
from sexpgpu.export.onnx.lowering import Profile
from sexpgpu.export.onnx.opset import choose_opset
from sexpgpu.export.onnx.verify import Verification, verify_model
from sexpgpu.export.onnx.write import check_embeddable, write_onnx
from sexpgpu.export.passes.at import gather_at
from sexpgpu.export.passes.fixed import fix_batch
from sexpgpu.export.passes.fold import fold_constants
from sexpgpu.export.passes.precision import set_precision
from sexpgpu.export.passes.prune import select_outputs
from sexpgpu.export.replacement import replacing
from sexpgpu.export.subject import Subject
from sexpgpu.export.weight_file import WeightFile
from sexpgpu.schemas.exported import MODEL, ONNX
from sexpgpu.schemas.precision import Precision

Target = Literal["any", "cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class ExportOptions:
    """How a model is shaped, lowered and stored; None takes the model's own."""

    outputs: tuple[str, ...] = ()
    at: bool = False
    precision: Precision | None = None
    weights: Precision = "f32"
    profile: Profile = "portable"
    opset: int | None = None
    batch: int | None = None
    target: Target = "any"
    embed: bool = False
    unroll: bool = False
    verify: bool = True


@dataclass
class Exported:
    """What was written."""

    directory: Path
    model: ModelFile
    weight_bytes: int
    files: dict[str, int] = field(default_factory=dict)
    verification: Verification | None = None
    note: str = ""


def export_model(subject: Subject, directory: Path, options: ExportOptions) -> Exported:
    """Writes an export of the subject to `directory`, beside and then renamed.

    Raises E-EXPORT-001 where the directory is something else's, E-EXPORT-002 and -003 where the
    model cannot be shaped so, E-EXPORT-005 to -007 and E-ONNX-001 where it cannot be written so,
    E-FILE-001 where the system refuses, and E-VERIFY-001 where the numbers are wrong; then nothing
    is left.
    """
    model = _shape_model(subject.model, options)
    weights = WeightFile(model.graph, options.weights)
    build_options = _build_options(model, options)
    if options.embed:
        check_embeddable(weights.nbytes)
    lowered = lower_graph(model, options.batch)
    onnx = build_model(lowered, weights.place, build_options)
    exported = Exported(directory, model, weights.nbytes)
    with replacing(directory) as temporary:
        weights.write(temporary, subject.read, subject.kept)
        (temporary / MODEL).write_bytes(write_model(model, producer()))
        onnx.metadata_props.add(key="sexpgpu.weights_sha256", value=weights.sha256)
        write_onnx(onnx, temporary / ONNX, embed=options.embed)

        def build_part(part: Graph) -> Path:
            path = temporary / "part.onnx"
            write_onnx(build_model(part, weights.place, build_options), path)
            return path

        exported.note = _obstacle(model, options)
        if not exported.note:
            exported.verification = verify_model(
                temporary / ONNX,
                lowered,
                weights.array,
                build_part,
                fixed=options.batch is not None,
            )
        weights.close()
        (temporary / "part.onnx").unlink(missing_ok=True)
        exported.files = {p.name: p.stat().st_size for p in sorted(temporary.iterdir())}
    return exported


def lower_graph(model: ModelFile, batch: int | None = None) -> Graph:
    """The graph that is written as ONNX: its precision in its products, constants folded."""
    graph = set_precision(model.graph, model.precision)
    if batch is not None:
        graph = fix_batch(graph, batch)
    return fold_constants(graph)


def _shape_model(model: ModelFile, options: ExportOptions) -> ModelFile:
    graph = model.graph
    if options.outputs:
        graph = select_outputs(graph, options.outputs)
    if options.at:
        graph = gather_at(graph)
    frozen = {path: source for path, source in model.frozen.items() if path in graph.weights}
    precision = options.precision or model.precision
    return ModelFile(graph, precision, model.checkpoint, model.step, model.slug, frozen)


def _build_options(model: ModelFile, options: ExportOptions) -> BuildOptions:
    metadata = {
        "producer": producer(),
        "checkpoint": model.checkpoint or "",
        "step": "" if model.step is None else str(model.step),
        "slug": model.slug or "",
        "precision": model.precision,
    }
    return BuildOptions(
        opset=choose_opset(options.profile, options.opset),
        profile=options.profile,
        batch=options.batch,
        native_bf16=options.target == "cuda",
        unroll=options.unroll,
        metadata={f"sexpgpu.{key}": value for key, value in metadata.items() if value},
        name=model.slug or "model",
    )


def _obstacle(model: ModelFile, options: ExportOptions) -> str:
    """Why the file is not verified; empty where it is."""
    if not options.verify:
        return "not verified: --no-verify"
    if options.target == "cuda" and model.precision == "bf16":
        return "not verified: products in bf16 need a CUDA device"
    return ""
