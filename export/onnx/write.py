"""An ONNX model on disk: the same model gives the same bytes, and ONNX's checker passes it."""

from __future__ import annotations

from pathlib import Path

import onnx

from sexpgpu.schemas.errors import SexpgpuError

#: What protobuf can hold in one file, less room for the graph.
EMBED_LIMIT = 2**31 - 2**24


def write_onnx(model: onnx.ModelProto, path: Path, *, embed: bool = False) -> None:
    """Writes and checks the file; external data stands beside it already.

    With `embed` that data goes into the file.  Raises E-ONNX-002 where ONNX's checker refuses it.
    """
    if embed:
        onnx.load_external_data_for_model(model, str(path.parent))
    path.write_bytes(model.SerializeToString(deterministic=True))
    try:
        onnx.checker.check_model(str(path), full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise SexpgpuError(
            "E-ONNX-002",
            "ONNX's checker refuses the file",
            came=str(error).strip(),
            place=str(path),
        ) from None


def check_embeddable(size: int) -> None:
    """Raises E-EXPORT-005 where weights of so many bytes do not fit into one file."""
    if size > EMBED_LIMIT:
        raise SexpgpuError(
            "E-EXPORT-005",
            "the weights do not fit into one ONNX file",
            came=f"{size:,} bytes",
            expected=f"at most {EMBED_LIMIT:,}",
            help="leave --embed out, or store them as bf16 with --weights bf16",
        )
