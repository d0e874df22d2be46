"""What a run will do, known before anything is computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from sexpgpu.export.initial import first_value
from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.tools.train.plan import Plan, make_plan
from support.training import LINE, write_line

NET = """
(defmodel net ()
  (parts fixed  (param (list 3 3) :load "given.npz" :frozen true)
         loaded (param (list 3 3) :load "given.npz" :key "fixed")
         table  (param 4 :dtype i32 :init (zeros))
         spare  (param 2 :init (ones))
         out    (linear 3 1))
  (apply (x) (out (matmul (matmul x fixed) loaded))))
(def model (net))
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The current directory, with the data."""
    monkeypatch.chdir(tmp_path)
    write_line(tmp_path)


def plan(text: str = LINE, more: str = "", steps: int | None = None, **named: object) -> Plan:
    path = Path("line.sx")
    path.write_text(text.replace("{more}", more))
    variant, knobs = named.get("variant"), named.get("knobs")
    return make_plan(path, variant, knobs, steps)  # type: ignore[arg-type]


def test_steps_that_are_given_go_before_the_runs() -> None:
    assert plan().run.steps == 20
    assert plan(steps=7).run.steps == 7


def test_how_often() -> None:
    found = plan()
    assert (found.checkpoint_every, found.evaluate_every) == (5, 5)
    found = plan(more=":evaluate-every 3")
    assert (found.checkpoint_every, found.evaluate_every) == (5, 3)
    found = plan(LINE.replace(":checkpoint-every 5", "").replace(":eval train", ""))
    assert (found.checkpoint_every, found.evaluate_every) == (1000, None)


def test_what_is_trained_and_what_is_not() -> None:
    given = np.arange(9, dtype=np.float32).reshape(3, 3)
    np.savez("given.npz", fixed=given)
    found = plan(LINE.replace("(def model (linear width 1))", NET))
    assert found.trained.keys() == {"loaded", "out.w", "out.b"}
    assert found.rest.keys() == {"fixed", "table", "spare"}
    for path in ("fixed", "loaded"):
        assert np.array_equal(first_value(found.program.parameters()[path], 0), given)
    assert first_value(found.rest["table"], 0).dtype == np.int32
    weight = found.trained["out.w"]
    assert np.array_equal(first_value(weight, 3), first_value(weight, 3))
    assert not np.array_equal(first_value(weight, 3), first_value(weight, 4))


def test_variant_and_knobs() -> None:
    text = "(defvariant longer :times 30)\n(defknob times 20)\n" + LINE
    text = text.replace(":steps 20", ":steps times")
    assert plan(text, variant="longer").run.steps == 30
    assert plan(text, knobs={"times": 4}).run.steps == 4


def test_a_model_that_cannot_run_alone_is_no_error() -> None:
    assert plan().obstacle is None
    net = "(def l (linear width 1))\n(defn model (x) (list (l x) l))"
    found = plan(
        LINE.replace("(def model (linear width 1))", net).replace(
            "(squeeze p", "(squeeze (first p)"
        )
    )
    assert found.alone is None
    assert found.obstacle is not None
    assert found.obstacle.code == "E-INFER-001"


def test_a_frozen_model_has_nothing_to_train() -> None:
    frozen = "(def w (param (list 3 1) :frozen true :init (ones)))\n(defn model (x) (matmul x w))"
    with pytest.raises(SexpgpuError) as caught:
        plan(LINE.replace("(def model (linear width 1))", frozen))
    assert caught.value.code == "E-RUN-005"
    assert caught.value.came == (
        "parameters that are frozen, no floats or behind `stop-gradient`: w"
    )


def test_what_the_gradient_of_the_loss_does_not_come_to_is_not_trained() -> None:
    """Neither what only a metric reads, nor what is behind `stop-gradient` alone."""
    net = """
    (defmodel net ()
      (parts target (linear 3 1) shared (linear 3 3) out (linear 3 1)
             gauge (param (list 1) :init (ones)))
      (apply (x)
        (metric :gauge (sum gauge))
        (+ (out (shared x)) (stop-gradient (target (shared x))))))
    (def model (net))
    """
    found = plan(LINE.replace("(def model (linear width 1))", net))
    assert found.trained.keys() == {"shared.w", "shared.b", "out.w", "out.b"}
    assert found.rest.keys() == {"target.w", "target.b", "gauge"}
