"""Stopping: a first signal asks for it, a second ends the process at once."""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class StopSignals:
    """Watches for SIGTERM, SIGINT and SIGHUP from a thread of its own.

    ONNX Runtime may keep the main thread busy for long, during which Python handles no signal; but
    the number of a signal is written into a socket at once.  `wake` becomes readable on the first;
    `leave` is called before the process ends at a second, or at the first while `loading`.
    """

    def __init__(self) -> None:
        self.leave: Callable[[], None] = lambda: None
        self.number: int | None = None
        self.loading = True
        self.on_stop: Callable[[], None] | None = None
        self._read, write = socket.socketpair()
        write.setblocking(False)
        self._write = write
        self.wake, self._wake_write = os.pipe()
        # First this: one that comes between the two is not lost.
        signal.set_wakeup_fd(write.fileno(), warn_on_full_buffer=False)
        for number in SIGNALS:
            # Under `nohup`, a terminal that closes stops nothing.
            if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN:
                signal.signal(number, lambda *_: None)
        threading.Thread(target=self._watch, name="signals", daemon=True).start()

    def ready(self) -> None:
        """From now on a first signal lets the calls in flight be answered."""
        self.loading = False
        if self.number is not None:
            self._end(self.number)

    def _watch(self) -> None:
        while True:
            for number in self._read.recv(16):
                if number not in SIGNALS:
                    continue
                if self.number is not None or self.loading:
                    self._end(number)
                self.number = number
                if self.on_stop is not None:
                    self.on_stop()
                os.write(self._wake_write, b"\0")

    def _end(self, number: int) -> None:
        self.leave()
        name = signal.Signals(number).name
        when = " while loading" if self.loading else " at once"
        with suppress(OSError):
            print(f"sexpgpu serve: stopped by {name}{when}", file=sys.stderr, flush=True)
        os._exit(128 + number)
