"""A case in a runtime: what came of it, compared with what it is to give."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.portability.cases import Case, Form
from sexpgpu.tools.portability.environments import interpreter
from sexpgpu.tools.portability.rounding import allowed
from sexpgpu.tools.portability.runtime import FOLDER, Runtime
from sexpgpu.tools.portability.runtimes.exchange import read_tensors

#: The largest difference that agrees, as a share of the output's largest magnitude.
TOLERANCE = 1e-4
#: A larger one agrees where rounding explains it, which is not asked from here on.
_PLAINLY_WRONG = 0.02


@dataclass
class Outcome:
    """What came of a case.

    `verdict` is `agrees`, `differs`, or where it ended: `import`, `load`, `run`.  `difference` is
    the largest, as a share of the largest magnitude of its output; of whole numbers and booleans
    the share that differs.  `seconds` are a run's with the smallest batch.  `form` says in words
    what is not as it is by default, and `reason` is the key of the one that is known.
    """

    runtime: str
    example: str
    profile: str
    form: str
    version: str = ""
    verdict: str = ""
    difference: float | None = None
    load_seconds: float | None = None
    seconds: float | None = None
    error: str = ""
    reason: str = ""

    @property
    def agrees(self) -> bool:
        """Whether it loads and gives the numbers."""
        return self.verdict == "agrees"


def attempt(runtime: Runtime, place: Path, case: Case, results: Path, *, again: bool) -> Outcome:
    """Runs the case in the runtime's environment, or takes what came of it when it was last run."""
    path = results / runtime.name / f"{case.name}-{case.form}.json"
    key = _key(runtime, case)
    if not again and path.exists():
        stored = json.loads(path.read_text())
        if stored.pop("key") == key:
            return Outcome(**stored)
    outcome = Outcome(runtime.name, case.name, case.form.profile, case.form.words)
    with tempfile.TemporaryDirectory(prefix="portability-") as temporary:
        out = Path(temporary)
        ended = _run(runtime, place, case, out)
        _judge(outcome, case, out, ended)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**asdict(outcome), "key": key}, indent=2))
    return outcome


def attempts(
    runtime: Runtime,
    place: Path,
    form: Form,
    prepared: Callable[[Form], Case],
    results: Path,
    *,
    again: bool,
) -> Iterator[Outcome]:
    """What comes of the case, and where it fails, of the forms that get round it.

    Where it is not known why it fails, it is tried with a batch of one, which may tell.
    """
    wanted: Form | None = form
    while wanted is not None:
        case = prepared(wanted)
        outcome = attempt(runtime, place, case, results, again=again)
        wanted = _explain(outcome, runtime, case)
        yield outcome


def stored(runtime: Runtime, name: str, form: Form, work: Path) -> Iterator[Outcome]:
    """What came of an example when it was last run, whatever has changed since."""
    wanted: Form | None = form
    while wanted is not None:
        path = work / "results" / runtime.name / f"{name}-{wanted}.json"
        if not path.exists():
            return
        found = json.loads(path.read_text())
        del found["key"]
        outcome = Outcome(**found)
        folder = work / "cases" / name / str(wanted)
        wanted = _explain(outcome, runtime, Case(name, wanted, folder, ""))
        yield outcome


def _explain(outcome: Outcome, runtime: Runtime, case: Case) -> Form | None:
    """Gives the outcome its reason, where one is known; the form to try next, if any."""
    if outcome.agrees:
        return None
    reason = next(
        (r for r in runtime.reasons if r.explains(outcome.error, outcome.version, case)), None
    )
    outcome.reason = reason.key if reason else ""
    change = reason.change if reason else "batch"
    if change is None or case.form.changed(change) == case.form:
        return None
    return case.form.changed(change)


def _run(runtime: Runtime, place: Path, case: Case, out: Path) -> str:
    """Runs the runner; what it wrote last, where it did not end well."""
    harness = FOLDER / ("exchange.mjs" if runtime.is_node else "exchange.py")
    words = [interpreter(runtime, place), str(harness), runtime.runner.stem]
    with (out / "log").open("w+b") as log:
        process = subprocess.Popen(
            [*words, str(case.folder), str(out)],
            cwd=place,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            # A trace of tract's would hide its words.
            env={**os.environ, "PORTABILITY_ENVIRONMENT": str(place), "RUST_BACKTRACE": "0"},
            start_new_session=True,
        )
        try:
            status = process.wait(runtime.seconds)
        except subprocess.TimeoutExpired:
            return f"took longer than {runtime.seconds} seconds"
        finally:
            # A browser, or a compiler, that it started ends with it.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        log.seek(0)
        last = log.read()[-4000:].decode(errors="replace").strip()
    if status < 0:
        return f"ended by {signal.Signals(-status).name}: {last}"
    return "" if status in (0, 1) else f"exit status {status}: {last}"


def _judge(outcome: Outcome, case: Case, out: Path, ended: str) -> None:
    result: dict[str, Any] = {"failure": {"stage": "import", "error": ""}}
    if (out / "result.json").exists():
        result = json.loads((out / "result.json").read_text())
    outcome.version = result.get("version", "")
    outcome.load_seconds = result.get("load_seconds")
    failure = result["failure"]
    if failure is not None:
        outcome.verdict = failure["stage"]
        at = f"with a batch of {failure['batch']}: " if "batch" in failure else ""
        outcome.error = at + (ended or failure["error"])
        return
    times = {run["batch"]: run["seconds"] for run in result["runs"]}
    outcome.seconds = times[min(times)]
    outcome.verdict = "agrees"
    outcome.difference = 0.0
    for batch in case.batches:
        found = read_tensors(out / f"outputs-{batch}.safetensors")
        want = read_tensors(case.folder / f"outputs-{batch}.safetensors")
        for name, array in want.items():
            difference, words = compare(found.get(name), array)
            if array.dtype.kind == "f" and TOLERANCE < difference < _PLAINLY_WRONG:
                _, words = compare(found[name], array, allowed(case, batch)[name])
            if words and outcome.agrees:
                outcome.verdict = "differs"
                outcome.error = f"with a batch of {batch}: `{name}` {words}"
            outcome.difference = max(outcome.difference, difference)


def compare(found: Array | None, want: Array, tolerance: float = TOLERANCE) -> tuple[float, str]:
    """The difference, and in words what is wrong, where it is more than may be."""
    if found is None:
        return np.inf, "is not among the outputs"
    if found.shape != want.shape or found.dtype != want.dtype:
        return np.inf, (
            f"is {list(found.shape)} {found.dtype}, not {list(want.shape)} {want.dtype}"
        )
    if want.dtype.kind != "f":
        count = int(np.sum(found != want))
        share = count / max(1, want.size)
        return share, f"differs in {count} of {want.size} elements" if count else ""
    finite = np.isfinite(want)
    if not np.array_equal(found[~finite], want[~finite], equal_nan=True):
        return np.inf, "is not infinite or NaN at the same places"
    if not np.isfinite(found[finite]).all():
        return np.inf, "is infinite or NaN where it is to be a number"
    a, b = found[finite].astype(np.float64), want[finite].astype(np.float64)
    largest = float(np.max(np.abs(b), initial=0.0))
    apart = float(np.max(np.abs(a - b), initial=0.0))
    difference = apart / max(largest, float(np.finfo(np.float32).tiny))
    wrong = difference > max(TOLERANCE, tolerance)
    return difference, f"differs by {difference:.2g} of its largest magnitude" if wrong else ""


def _key(runtime: Runtime, case: Case) -> str:
    """What an outcome depends on: the file and the inputs, the runtime and what calls it."""
    digest = hashlib.sha256()
    # How the case came to be matters only where it is another.
    paths = sorted(path for path in case.folder.iterdir() if path.name != "key")
    harness = FOLDER / ("exchange.mjs" if runtime.is_node else "exchange.py")
    for path in [*paths, runtime.runner, harness]:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    digest.update("\n".join(runtime.packages).encode())
    return digest.hexdigest()
