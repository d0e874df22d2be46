"""Contenders that train by turns: that all compute the same, and what becomes of one that ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from sexpgpu.tools.bench import train_turns
from sexpgpu.tools.bench.train_gpt import GPTS, prepare
from sexpgpu.tools.bench.train_report import expectations
from sexpgpu.tools.bench.train_turns import EAGER, JAX, RUN, STEP, Effort, measure

_SHORT = Effort(rounds=2, seconds=0.01, starts=1)


def test_all_train_the_same_model(tmp_path: Path) -> None:
    names = [JAX, STEP, RUN]
    try:
        import torch  # noqa: F401
    except ImportError:
        pass
    else:
        names.append(EAGER)
    prepare(GPTS["tiny"], tmp_path)
    found = measure(tmp_path, "cpu", names, _SHORT)
    assert found.unavailable == {}
    assert list(found.seconds) == names
    assert all(len(seconds) == 2 for seconds in found.seconds.values())
    assert all(value > 1 << 20 for value in found.bytes.values())
    for losses in found.losses.values():
        assert len(losses) == 5
        assert losses[4] < losses[0] - 0.01, "the weights of the first step do not tell apart"
    *_, apart = expectations("tiny", found)
    assert apart.holds, apart.value


@pytest.mark.parametrize("steps", [0, 1, 5, 8])
def test_who_ends_is_left_out_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """At its first step, as it warms up, and in its first turn."""

    def command(name: str, folder: Path, device: str) -> list[str]:
        return [train_turns.sys.executable, "-c", _SCRIPT, str(steps if name == EAGER else 99)]

    monkeypatch.setattr(train_turns, "_command", command)
    found = measure(tmp_path, "cpu", [JAX, EAGER], _SHORT)
    assert found.unavailable == {EAGER: "RuntimeError: no more"}
    assert set(found.seconds) == set(found.losses) == {JAX}
    assert len(found.seconds[JAX]) == 2


#: Ends with an error after so many steps.
_SCRIPT = """
import sys
left = int(sys.argv[1])
for line in sys.stdin:
    for _ in range(int(line)):
        left -= 1
        if left < 0:
            raise RuntimeError("no more")
    print('{"seconds": 1.0}', flush=True)
print('{"losses": [], "device_bytes": 1}')
"""
