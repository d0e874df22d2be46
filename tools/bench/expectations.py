"""What is expected of the server, as ratios of one run."""

from __future__ import annotations

from dataclasses import dataclass

from sexpgpu.tools.bench.rounds import BATCH, CLIENTS, Measured, middle

#: Of the calls a second that ONNX Runtime makes in process, at 8 clients and its batches of 8.  Of
#: a larger model the probe may try smaller batches only, and a run's own noise is many echoes.
_SHARE = {"tiny": 0.35, "small": 0.75, "medium": 0.97}


@dataclass(frozen=True, slots=True)
class Expectation:
    """A ratio, and the limit that it must keep."""

    model: str
    what: str
    value: float
    limit: float
    at_least: bool = False

    @property
    def holds(self) -> bool:
        """Whether it is kept."""
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    @property
    def bound(self) -> str:
        """`≤ 1.5`"""
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


def expectations(found: Measured) -> list[Expectation]:
    """Those that can be told from what was measured for one model."""
    model = found.exported.model.name
    ours = [loads for (who, _), loads in found.loads.items() if who.startswith("server")]
    errors = sum(load.errors for loads in [*ours, *found.crowd.values()] for load in loads)
    made = _against_the_ceiling(found) if model in _SHARE else []
    made += [
        Expectation(
            model,
            "start to first answer, of a bare script's",
            _ratio(found.seconds["server"], found.seconds["bare"]),
            1.3,
        ),
        Expectation(
            model,
            "resident memory, of a bare script's",
            found.bytes["server"] / found.bytes["bare"],
            1.1,
        ),
        Expectation(
            model,
            "p99 of 100 clients among 1,000, of 100 alone",
            _ratio(
                [load.p99_us for load in found.crowd["among idle"]],
                [load.p99_us for load in found.crowd["alone"]],
            ),
            2.0,
        ),
        Expectation(model, "wrong answers and errors", float(errors), 0.0),
    ]
    if "server after" in found.bytes:
        after, before = found.bytes["server after"], found.bytes["server before"]
        made.append(Expectation(model, "memory after many calls, of before", after / before, 1.01))
    if model == "tiny":
        made += _against_peers(found)
    return made


def _against_the_ceiling(found: Measured) -> list[Expectation]:
    """Against ONNX Runtime in process, which waits for nobody."""
    model = found.exported.model.name
    rounds = zip(found.p50("server", 1), found.p50("in process", 1), found.echo_us, strict=True)
    over = [(ours - alone) / echo for ours, alone, echo in rounds]
    return [
        Expectation(model, "one client's p50 beyond the run, in echoes", middle(over), 1.5),
        Expectation(
            model,
            "8 clients' calls/s of the calls/s in process",
            _ratio(found.rates("server", BATCH), found.rates("in process", BATCH)),
            _SHARE[model],
            at_least=True,
        ),
    ]


def _against_peers(found: Measured) -> list[Expectation]:
    """Against whichever peer is best at it."""
    names = [who for who, clients in found.loads if clients == BATCH and who in found.bytes]
    peers = [name for name in names if name not in ("server", "in process")]
    if not peers:
        return []
    quickest = min(peers, key=lambda name: middle(found.p50(name, CLIENTS[0])))
    busiest = max(peers, key=lambda name: middle(found.rates(name, BATCH)))
    return [
        Expectation(
            "tiny",
            f"8 clients' calls/s, of the best peer's ({busiest})",
            _ratio(found.rates(f"server beside {busiest}", BATCH), found.rates(busiest, BATCH)),
            2.5,
            at_least=True,
        ),
        Expectation(
            "tiny",
            f"one client's p50, of the best peer's ({quickest})",
            _ratio(found.p50(f"server beside {quickest}", 1), found.p50(quickest, 1)),
            0.5,
        ),
    ]


def _ratio(values: list[float], others: list[float]) -> float:
    """The median of the rounds' ratios: what slows a round slows both."""
    return middle([a / b for a, b in zip(values, others, strict=True)])
