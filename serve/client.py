"""The blocking client: NumPy arrays in and out, over the socket of `sexpgpu serve`."""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType
from typing import Any, TypeVar

from sexpgpu.schemas.errors import SexpgpuError
from sexpgpu.serve.exchange import (
    Answer,
    Greeting,
    Record,
    Result,
    ended,
    gone,
    greeting_length,
    no_server,
    refused,
)
from sexpgpu.serve.protocol import HEADER, PIECES, TensorSpec, advance

T = TypeVar("T")

#: Calls that `call_many` has under way before it waits for answers.
_AHEAD = 256


class Client:
    """A connection to a server.

    `timeout` is in seconds, for connecting and for each call; None waits for ever.  Threads may
    share a client: their calls wait for each other, so that a client for each is faster.  After a
    timeout or a fault of the connection it is closed, since an answer may still be under way.

    Raises E-CLIENT-001 where no server answers, E-CLIENT-003 where something else does.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> None:
        self.path = os.fspath(path)
        self.timeout = timeout
        self._lock = threading.Lock()
        self._end: float | None = None
        self._start()
        self._socket = _connect(self.path, self._end)
        self._greeting: Greeting = self._guarded(self._greet)

    @property
    def about(self) -> dict[str, Any]:
        """The greeting: checkpoint, step, slug, precision, inputs, outputs, device and batch."""
        return self._greeting.about

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """What a call takes, in order."""
        return self._greeting.inputs

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """What a call gives, in order."""
        return self._greeting.outputs

    def call(self, *arrays: Any, **named: Any) -> Result:
        """The outputs for one record: an array, or where there are several a dict by name.

        Arrays have the shapes of `inputs`, or are without a first axis of length 1; a dtype is
        converted where that keeps every value.  Raises E-CALL-010 where they do not fit,
        E-CLIENT-002 with the server's words where it refuses the call, E-CLIENT-001 where it has
        gone.
        """
        pieces = self._greeting.pack(arrays, named)
        answer = Answer(self._greeting)
        with self._lock:
            self._start()
            return self._guarded(lambda: self._exchange(pieces, answer))

    __call__ = call

    def call_many(
        self, records: Iterable[Record], *, return_exceptions: bool = False
    ) -> list[Result]:
        """The results for many records, in order, which are sent without waiting for each answer.

        A record is what `call` takes: an array for a model of one input, a list or tuple of arrays,
        or a dict by name.  All are checked before any is sent.  Where the server refuses some, the
        first error is raised when all are done; with `return_exceptions` they stand in the list.
        """
        calls = [self._greeting.pack_record(record) for record in records]
        with self._lock:
            self._start()
            results = self._guarded(lambda: self._exchange_many(calls))
        for number, result in enumerate(results):
            if isinstance(result, SexpgpuError) and not return_exceptions:
                result.notes.append(f"it is the answer to record {number} of {len(results)}")
                raise result
        return results

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _greet(self) -> Greeting:
        return Greeting.read(self._read(greeting_length(self._read(HEADER.size))))

    def _start(self) -> None:
        self._end = None if self.timeout is None else time.monotonic() + self.timeout

    def _guarded(self, exchange: Callable[[], T]) -> T:
        """Closes the connection where an exchange ends in any other way than with an answer."""
        if self._socket.fileno() < 0:
            raise gone("it was closed before")
        try:
            return exchange()
        except OSError as error:
            self.close()
            raise ended(error) from None
        except SexpgpuError as error:
            if error.code != "E-CLIENT-002":
                self.close()
            raise
        except BaseException:
            self.close()
            raise

    def _exchange(self, pieces: list[memoryview], answer: Answer) -> Result:
        # A server that closes may have said why before.
        with suppress(BrokenPipeError, ConnectionResetError):
            while pieces:
                self._allow()
                advance(pieces, self._socket.sendmsg(pieces[:PIECES]))
        return self._receive(answer)

    def _exchange_many(self, calls: list[list[memoryview]]) -> list[Any]:
        """Sends and receives by turns: a server does not read on from whoever does not read."""
        poll = select.poll()
        results: list[Any] = []
        to_send = deque(calls)
        sending: list[memoryview] = []
        while len(results) < len(calls):
            under_way = len(calls) - len(to_send) - len(results)
            if not sending and to_send and under_way < _AHEAD:
                sending = to_send.popleft()
            poll.register(self._socket, select.POLLIN | (select.POLLOUT if sending else 0))
            left = self._allow()
            [(_, events)] = poll.poll(None if left is None else left * 1000) or [(0, 0)]
            if sending and events & select.POLLOUT:
                try:
                    count = self._socket.sendmsg(sending[:PIECES], [], socket.MSG_DONTWAIT)
                    advance(sending, count)
                    continue
                except BlockingIOError:
                    pass
                except (BrokenPipeError, ConnectionResetError):
                    sending, to_send = [], deque()
            if events & ~select.POLLOUT:
                try:
                    results.append(self._receive(Answer(self._greeting)))
                except SexpgpuError as error:
                    if error.code != "E-CLIENT-002":
                        raise
                    results.append(error)
        return results

    def _receive(self, answer: Answer) -> Result:
        places, received = answer.places, 0
        while places:
            before, received = received, received + self._read_into(places)
            if before <= HEADER.size < received:
                length = answer.error_length(received)
                if length is not None:
                    text = answer.begun_text(received)
                    raise refused(text + self._read(length - len(text)))
        return answer.result()

    def _read(self, size: int) -> bytearray:
        """So many bytes."""
        data = bytearray(size)
        places = [memoryview(data)] if size else []
        while places:
            self._read_into(places)
        return data

    def _read_into(self, places: list[memoryview]) -> int:
        """Fills some of the places with what has come, and drops them."""
        self._allow()
        count = self._socket.recvmsg_into(places[:PIECES])[0]
        if not count:
            raise gone("the server closed it")
        advance(places, count)
        return count

    def _allow(self) -> float | None:
        """Lets the socket wait as long as is left, and says how long; None is for ever."""
        if self._end is None:
            return None
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._socket.settimeout(left)
        return left


def _connect(path: str, end: float | None) -> socket.socket:
    """Raises E-CLIENT-001 where nobody listens."""
    connection = socket.socket(socket.AF_UNIX)
    while True:
        try:
            connection.settimeout(None if end is None else max(0.0, end - time.monotonic()))
            connection.connect(path)
            return connection
        except BlockingIOError:
            # With a timeout, a queue that is full is no reason for the system to wait.
            if end is None or time.monotonic() < end:
                time.sleep(0.005)
                continue
            connection.close()
            raise no_server(path, "its queue is full") from None
        except (OSError, ValueError) as error:
            connection.close()
            reason = error.strerror if isinstance(error, OSError) else str(error)
            raise no_server(path, reason or str(error)) from None
