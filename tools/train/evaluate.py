"""An evaluation pass: the metrics of a model over a dataset, each record counted once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from sexpgpu.export.language.recording import recompile
from sexpgpu.export.language.training import LOSS, trace_evaluation
from sexpgpu.export.storage.checkpoint import open_checkpoint
from sexpgpu.schemas.checkpoint import AVERAGES
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.schemas.precision import Precision
from sexpgpu.tools.train.data.dataset import Dataset
from sexpgpu.tools.train.data.datasets import open_dataset
from sexpgpu.tools.train.data.feed import Feed
from sexpgpu.tools.train.engine import Arrays, Evaluation, make_evaluation


def evaluate(
    evaluation: Evaluation,
    parameters: Arrays,
    dataset: Dataset,
    batch: int,
    batches: int | None = None,
) -> dict[str, float]:
    """The means of the metrics over the records, in batches of `batch`, at most so many.

    A metric that is not a mean over records is taken as one: the last batch may be smaller, and
    counts less.  Raises what reading the data raises.
    """
    found: list[tuple[int, Arrays]] = []
    with Feed.in_order(dataset, batch, batches=batches) as feed:
        for number, records in enumerate(feed):
            count = len(next(iter(records.values())))
            given = {name: jax.device_put(array) for name, array in records.items()}
            found.append((count, evaluation(parameters, given, np.uint32(number))))
    total = sum(count for count, _ in found)
    sums = dict.fromkeys(found[0][1], 0.0)
    for count, metrics in found:
        for name, value in metrics.items():
            sums[name] += count / total * float(value)
    # JAX sorts names; the loss comes first.
    return {name: sums[name] for name in sorted(sums, key=lambda name: name != LOSS)}


@dataclass(frozen=True)
class Evaluated:
    """What a checkpoint's model gives over a dataset: its metrics by precision and by name."""

    checkpoint: str
    step: int
    weights: str
    data: str
    records: int
    metrics: dict[str, dict[str, float]]


def evaluate_checkpoint(
    path: Path, where: str, *, trained: bool, precisions: Sequence[Precision]
) -> Evaluated:
    """The evaluation of a file under the variant and knobs that a checkpoint records.

    In the run's own precision where none is given.  Raises E-RUN-009 where there is nothing to
    evaluate, E-CKPT-005 where the checkpoint is another program's, and what reading it raises.
    """
    stored = open_checkpoint(where)
    program = recompile(path, stored.document, str(stored.location))
    evaluation, run = trace_evaluation(program), program.run
    if evaluation is None or run is None:
        missing = "`loss`" if run is not None else "`defrun`"
        raise SexpgpuError(
            "E-RUN-009",
            f"{path} has no {missing}, so that there is nothing to evaluate",
            place=str(path),
            expected="(defn loss (prediction prepared) …), and (defrun :train train :eval eval …)",
        )
    loader = run.eval or run.train
    dataset = open_dataset(loader)
    weights = stored.weights(trained=trained)
    parameters = {name: jnp.asarray(weights.array(name)) for name in evaluation.graph.weights}
    found: dict[str, dict[str, float]] = {
        precision: evaluate(
            make_evaluation(evaluation, precision, run.seed),
            parameters,
            dataset,
            run.batch,
            run.evaluate_batches,
        )
        for precision in dict.fromkeys(precisions or [run.precision])
    }
    averaged = not trained and stored.document.file(AVERAGES) is not None
    counted = len(dataset.evaluation())
    if run.evaluate_batches is not None:
        counted = min(counted, run.evaluate_batches * run.batch)
    return Evaluated(
        str(stored.location),
        stored.document.step,
        "averages" if averaged else "trained weights",
        loader.file or loader.kind,
        counted,
        found,
    )
