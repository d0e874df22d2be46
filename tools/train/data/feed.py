"""Batches prepared ahead of the device, in a thread of their own."""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from types import TracebackType

import numpy as np

from sexpgpu.export.graph.types import Array
from sexpgpu.tools.train.data.dataset import Dataset
from sexpgpu.tools.train.data.shuffle import Shuffle

Records = dict[str, Array]


class Feed(Iterator[Records]):
    """The batches of a run from `start_step` on, up to `steps` of them in all or without end.

    Step n has the records at the positions from n * batch on of the seed's order, so a batch may
    reach into the next epoch, or several.  At most `depth` batches are ready and one is under way.
    An error of the data is raised where its batch would come, and again whenever that is asked for.
    It is closed by `close`, at the end of a `with`, and where nobody holds it any more.
    """

    def __init__(
        self,
        dataset: Dataset,
        batch: int,
        seed: int,
        start_step: int = 0,
        *,
        steps: int | None = None,
        depth: int = 2,
    ) -> None:
        order = Shuffle(dataset.count, seed)
        self._begin(dataset, _positions(order, batch, start_step, steps), depth)

    @classmethod
    def in_order(
        cls, dataset: Dataset, batch: int, *, batches: int | None = None, depth: int = 2
    ) -> Feed:
        """One pass of an evaluation, the first `batches` of it where given.

        The last batch of a whole pass has fewer records where they do not come out even.
        """
        records = dataset.evaluation()
        if batches is not None:
            records = records[: batches * batch]
        feed = cls.__new__(cls)
        feed._begin(dataset, _slices(records, batch), depth)
        return feed

    def _begin(self, dataset: Dataset, indices: Iterable[Array], depth: int) -> None:
        self._work = _Work(dataset, indices, depth)
        # The thread holds the work alone, so that a feed that is dropped is collected, and ends it.
        self._close = weakref.finalize(self, self._work.close)

    def __next__(self) -> Records:
        return self._work.take()

    def close(self) -> None:
        """End the thread; it finishes the batch that it is at, and no other."""
        self._close()

    def __enter__(self) -> Feed:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Work:
    """What the thread and the one who takes its batches share."""

    def __init__(self, dataset: Dataset, indices: Iterable[Array], depth: int) -> None:
        self._dataset = dataset
        self._indices = indices
        self._depth = depth
        self._ready: deque[Records] = deque()
        self._end: BaseException | None = None
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._prepare, name="sexpgpu-feed", daemon=True)
        self._thread.start()

    def take(self) -> Records:
        with self._changed:
            self._changed.wait_for(lambda: self._ready or self._end or self._closed)
            if self._closed:
                raise StopIteration
            if self._ready:
                self._changed.notify_all()
                return self._ready.popleft()
            assert self._end is not None
            raise self._end

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._ready.clear()
            self._changed.notify_all()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _prepare(self) -> None:
        end: BaseException = StopIteration()
        try:
            for indices in self._indices:
                records = self._dataset.batch(indices)
                if not self._put(records):
                    return
        # Whatever it is belongs to the one who takes the batch.
        except BaseException as error:
            end = error
        with self._changed:
            self._end = end
            self._changed.notify_all()

    def _put(self, records: Records) -> bool:
        """Whether the batch was taken in; False once the feed is closed."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._ready) < self._depth or self._closed)
            if not self._closed:
                self._ready.append(records)
                self._changed.notify_all()
            return not self._closed


def _positions(order: Shuffle, batch: int, step: int, steps: int | None) -> Iterator[Array]:
    while steps is None or step < steps:
        yield order.indices(step * batch, batch)
        step += 1


def _slices(records: range, batch: int) -> Iterator[Array]:
    for start in range(0, len(records), batch):
        yield np.asarray(records[start : start + batch], np.int64)
