"""The probe at start: which batch sizes give every record the bits that it has alone.

It is also the warm-up.  Batches of every size are run over random and extreme records, in all rows
and beside all kinds of neighbours, and each row is compared with the same record's run alone.  How
many records and sizes are tried depends on what a run costs: a model of 100 ms is not probed for a
minute before it answers.  A size that was not tried is not used.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sexpgpu.serve.engine import Engine
from sexpgpu.serve.trial import Trial

#: Seconds that a probe may take where its caller does not say.
BUDGET = 0.05
#: Trying each size once may take as long, so that a model of some 50 ms a run has its batches.
_ONCE = 1.0
#: Where a batch costs clearly less than its calls alone, so much more time is well spent.
_PATIENCE = 10.0
_GAIN = 2.0
#: A run of one fixed size is worth its padding where it takes at most so many lone runs, and
#: clearly less than its calls alone: a call that comes alone is padded as well.
_PADDING_COST = 2.0
_RECORDS = 64
#: So many times the records and batches where one size differs, which makes the others suspect.
_SUSPICION = 8
_FEWEST_RECORDS = 3
#: Where an operator of the file is known for other bits in the tails of vectors, a few records do
#: not show it.
_DOUBTFUL_RECORDS = 48
#: Calls are parted into two runs where these take so much of the time of one that is filled up.
_PARTING_GAIN = 0.95
#: The part of the time that the records' runs alone may take.
_ALONE_SHARE = 0.3


class Plan(msgspec.Struct, frozen=True):
    """Which size to run for so many waiting calls: `size_for[n]`, for n up to `limit`.

    `together[n]` says how many of n waiting calls to run at once: fewer, and then one of the sizes,
    where it is quicker to run them in parts that fit than in a size that is filled up.
    `padded` says that every run has one fixed size, since no smaller one has the bits of a call
    alone; `refused` are the sizes that were tried and not taken.  `note` says why calls run one at
    a time where the model itself would allow more.
    """

    limit: int
    size_for: tuple[int, ...]
    padded: bool = False
    refused: tuple[int, ...] = ()
    note: str = ""
    together: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if not self.together:
            msgspec.structs.force_setattr(self, "together", tuple(range(self.limit + 1)))

    @property
    def sizes(self) -> tuple[int, ...]:
        """The sizes that are run, ascending."""
        return tuple(sorted(set(self.size_for[1:])))

    def describe(self) -> str:
        """In a line, for a person."""
        if self.limit == 1:
            return "one call at a time" + (f": {self.note}" if self.note else "")
        if self.padded:
            return f"every run padded to {self.limit}, which has the same bits for any neighbours"
        shown = _ranges(self.sizes)
        if self.refused:
            return f"sizes {shown}; not {_ranges(self.refused)}, whose bits differ"
        return f"sizes {shown}, each with the bits of a call alone"


ALONE = Plan(1, (0, 1))


def probe(engine: Engine, seconds: float = BUDGET) -> Plan:
    """Tries batch sizes up to the engine's limit, for about so many seconds.

    What is tried follows from how long one lone run takes, so that a busy machine changes nothing.
    """
    trial = Trial(engine)
    lone = trial.warm_up()
    if engine.limit == 1 or lone is None:
        return ALONE
    sizes = candidate_sizes(engine.limit, lone)
    fewest = _DOUBTFUL_RECORDS if engine.hosted.doubtful else _FEWEST_RECORDS
    if lone * (fewest + sum(sizes)) > max(seconds, _ONCE):
        sizes, seconds = _worthwhile(trial, sizes, fewest, lone, seconds)
        if not sizes:
            return Plan(1, (0, 1), note=f"a run takes {lone * 1e3:.0f} ms, batches gain little")
    trial.prepare(max(fewest, min(_RECORDS, int(_ALONE_SHARE * seconds / lone))))
    # Each size is given its part of the time: so many batches of it.
    batches = {size: max(1, int(seconds / (len(sizes) * size * lone))) for size in sizes}
    good = [1, *(size for size in sizes if trial.same(size, batches[size]))]
    refused = tuple(size for size in sizes if size not in good)
    if refused:
        # Others may differ too, in ways that few records show.
        trial.prepare(_SUSPICION * trial.count)
        good = [size for size in good if size == 1 or trial.same(size, _SUSPICION * batches[size])]
    if len(good) > 1:
        return Plan(good[-1], _fill(good), False, refused, "", _part(good, trial.fastest))
    # Alone it has run often by now: the least that it took is what it takes.
    lone = trial.fastest[1]
    for size in reversed(refused):
        taken = trial.seconds(size)
        pays = taken <= _PADDING_COST * lone and size * lone >= _GAIN * taken
        if pays and trial.same_padded(size):
            return Plan(size, (0, *[size] * size), True, refused)
    return Plan(1, (0, 1), False, refused, "in batches its bits differ")


def _worthwhile(
    trial: Trial, sizes: list[int], fewest: int, lone: float, seconds: float
) -> tuple[list[int], float]:
    """Of a slow model, the sizes that can be tried in time with so many records, and the time.

    A batch of two shows what a further record costs: where it is as much as the first, batches
    gain nothing, and only sizes that are quickly tried are; where it is little, more time is spent.
    """
    further = max(0.0, trial.seconds(2) - lone)
    costs = {size: lone + (size - 1) * further for size in sizes}
    if max(sizes) * lone >= _GAIN * costs[max(sizes)]:
        seconds *= _PATIENCE
    kept: list[int] = []
    left = seconds - fewest * lone
    for size in sizes:
        left -= costs[size]
        if left >= 0:
            kept.append(size)
    return kept, seconds


def candidate_sizes(limit: int, seconds: float) -> list[int]:
    """The sizes from 2 that are tried: all up to 16 where a lone run is quick, else doublings."""
    sizes = {2**power for power in range(1, 13)}
    if seconds < 1e-3:
        sizes |= set(range(2, 17)) | set(range(24, 65, 8))
    return sorted({size for size in sizes if size < limit} | {limit})


def _fill(good: Sequence[int]) -> tuple[int, ...]:
    """For each number of calls the least size that holds them."""
    return (0, *(next(size for size in good if size >= n) for n in range(1, good[-1] + 1)))


def _part(good: Sequence[int], seconds: Mapping[int, float]) -> tuple[int, ...]:
    """For each number of calls how many are run first, so that all are answered soonest."""
    fill = _fill(good)
    least, first = [0.0], [0]
    for waiting in range(1, good[-1] + 1):
        least.append(seconds[fill[waiting]])
        first.append(waiting)
        for size in reversed(good):
            if size < waiting < fill[waiting]:
                parted = seconds[size] + least[waiting - size]
                if parted < _PARTING_GAIN * least[waiting]:
                    least[waiting], first[waiting] = parted, size
    return tuple(first)


def _ranges(sizes: Sequence[int]) -> str:
    """`1 to 4, 8`"""
    parts: list[list[int]] = []
    for size in sizes:
        if parts and parts[-1][-1] == size - 1:
            parts[-1].append(size)
        else:
            parts.append([size])
    return ", ".join(f"{p[0]} to {p[-1]}" if len(p) > 1 else str(p[0]) for p in parts)
