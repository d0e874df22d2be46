"""The client for asyncio: as `Client`, and waiting for an answer keeps nobody else from running."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Coroutine, Iterable
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
from sexpgpu.serve.protocol import HEADER, TensorSpec, advance

T = TypeVar("T")

#: Smaller calls are sent as one piece.
_JOIN_LIMIT = 1 << 16
#: Answers that `call_many` sends on ahead of.
_AHEAD = 256
_RETRY_SECONDS = 0.005


class AsyncClient:
    """A connection to a server, opened by `await AsyncClient.connect(path)` or `async with`.

    Calls made while another is under way wait for it, first come, first served; a client for each
    task lets the server run them together.  `timeout` is in seconds, for connecting and, from its
    turn on, for each call; None waits for ever.  A call that is cancelled or times out closes the
    connection, since its answer may still be under way.

    Raises what `Client` raises.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float | None = None) -> None:
        self.path = os.fspath(path)
        self.timeout = timeout
        self._lock = asyncio.Lock()
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.setblocking(False)
        self._read_greeting: Greeting | None = None

    @classmethod
    async def connect(
        cls, path: str | os.PathLike[str], *, timeout: float | None = None
    ) -> AsyncClient:
        """Connects and reads the greeting."""
        client = cls(path, timeout=timeout)
        await client._guarded(client._greet())
        return client

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

    async def call(self, *arrays: Any, **named: Any) -> Result:
        """The outputs for one record, as `Client.call` gives them."""
        pieces = self._greeting.pack(arrays, named)
        answer = Answer(self._greeting)
        async with self._lock:
            return await self._guarded(self._exchange(pieces, answer))

    __call__ = call

    async def call_many(
        self, records: Iterable[Record], *, return_exceptions: bool = False
    ) -> list[Result]:
        """The results for many records, in order, as `Client.call_many` gives them."""
        calls = [self._greeting.pack_record(record) for record in records]
        async with self._lock:
            results = await self._guarded(self._exchange_many(calls))
        for number, result in enumerate(results):
            if isinstance(result, SexpgpuError) and not return_exceptions:
                result.notes.append(f"it is the answer to record {number} of {len(results)}")
                raise result
        return results

    def close(self) -> None:
        """Ends the connection."""
        self._socket.close()

    async def __aenter__(self) -> AsyncClient:
        if self._read_greeting is None:
            await self._guarded(self._greet())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def _greeting(self) -> Greeting:
        if self._read_greeting is None:
            raise gone("it was not opened: use `async with`, or `await AsyncClient.connect(path)`")
        return self._read_greeting

    async def _guarded(self, exchange: Coroutine[Any, Any, T]) -> T:
        """Closes the connection where an exchange ends in any other way than with an answer."""
        if self._socket.fileno() < 0:
            exchange.close()
            raise gone("it was closed before")
        try:
            async with asyncio.timeout(self.timeout):
                return await exchange
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

    async def _greet(self) -> None:
        while True:
            try:
                self._socket.connect(self.path)
                break
            except BlockingIOError:
                # The server's queue is full, which the system has no way to wait for.
                await asyncio.sleep(_RETRY_SECONDS)
            except (OSError, ValueError) as error:
                reason = error.strerror if isinstance(error, OSError) else None
                raise no_server(self.path, reason or str(error)) from None
        length = greeting_length(await self._read(HEADER.size))
        self._read_greeting = Greeting.read(await self._read(length))

    async def _exchange(self, pieces: list[memoryview], answer: Answer) -> Result:
        # A server that closes may have said why before.
        with suppress(BrokenPipeError, ConnectionResetError):
            await self._send(pieces)
        return await self._receive(answer)

    async def _exchange_many(self, calls: list[list[memoryview]]) -> list[Any]:
        """Sends and receives side by side: a server does not read on from whoever does not read."""
        ahead = asyncio.Semaphore(_AHEAD)

        async def send_all() -> None:
            for pieces in calls:
                await ahead.acquire()
                await self._send(pieces)

        sender = asyncio.ensure_future(send_all())
        results: list[Any] = []
        try:
            for _ in calls:
                try:
                    results.append(await self._receive(Answer(self._greeting)))
                except SexpgpuError as error:
                    if error.code != "E-CLIENT-002":
                        raise
                    results.append(error)
                ahead.release()
        finally:
            sender.cancel()
            await asyncio.gather(sender, return_exceptions=True)
        return results

    async def _send(self, pieces: list[memoryview]) -> None:
        loop = asyncio.get_running_loop()
        if sum(map(len, pieces)) <= _JOIN_LIMIT:
            pieces = [memoryview(b"".join(pieces))]
        for piece in pieces:
            await loop.sock_sendall(self._socket, piece)

    async def _receive(self, answer: Answer) -> Result:
        places, received = answer.places, 0
        while places:
            before, received = received, received + await self._read_into(places)
            if before <= HEADER.size < received:
                length = answer.error_length(received)
                if length is not None:
                    text = answer.begun_text(received)
                    raise refused(text + await self._read(length - len(text)))
        return answer.result()

    async def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        places = [memoryview(data)] if size else []
        while places:
            await self._read_into(places)
        return data

    async def _read_into(self, places: list[memoryview]) -> int:
        """Fills some of the first place with what has come."""
        count = await asyncio.get_running_loop().sock_recv_into(self._socket, places[0])
        if not count:
            raise gone("the server closed it")
        advance(places, count)
        return count
