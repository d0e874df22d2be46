"""The end of a server: calls in flight are answered, and nobody can keep it waiting for long."""

from __future__ import annotations

import array
import fcntl
import termios
import time
from typing import TYPE_CHECKING

from sexpgpu.serve.connection import Connection
from sexpgpu.serve.protocol import HEADER

if TYPE_CHECKING:
    from sexpgpu.serve.server import Server

#: How long clients have to read their answers, and to go on with a call that they have begun.
_STOP_SECONDS = 5.0
_QUIET_SECONDS = 0.25


def finish(server: Server) -> None:
    """Answers the calls that have arrived or begun to, and closes every connection.

    A call that comes later is not answered, so that clients that go on calling do not keep the
    server alive.
    """
    for connection in server.connections.values():
        connection.due = _count_due(connection, HEADER.size + server.call_size)
    end = time.monotonic() + _STOP_SECONDS
    while True:
        for connection in list(server.connections.values()):
            if connection.due <= 0 and not connection.outgoing:
                server.close(connection)
        left = end - time.monotonic()
        if not server.connections or left <= 0:
            break
        if not server.turn(min(left, _QUIET_SECONDS)):
            # Whoever has begun a call and does not go on with it is not waited for.
            for connection in server.connections.values():
                connection.due = 0
    for connection in list(server.connections.values()):
        server.close(connection)


def _count_due(connection: Connection, frame_size: int) -> int:
    """How many calls a client has sent or begun to send."""
    if connection.closing:
        return 0
    unread = array.array("i", [0])
    fcntl.ioctl(connection.fd, termios.FIONREAD, unread)
    return -(-(connection.received + unread[0]) // frame_size)
