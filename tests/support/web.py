"""A small web server over a directory, for the tests of what is read over HTTP."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class _Handler(http.server.SimpleHTTPRequestHandler):
    requests: list[str]
    listing: bool

    def do_GET(self) -> None:
        self.requests.append(self.path)
        super().do_GET()

    def list_directory(self, path: Any) -> Any:
        if self.listing:
            return super().list_directory(path)
        self.send_error(403)
        return None

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""


@contextmanager
def web_server(directory: Path, *, listing: bool = True) -> Iterator[tuple[str, list[str]]]:
    """Serve `directory`; gives its URL and the list of paths asked for so far."""
    requests: list[str] = []
    handler = type("Handler", (_Handler,), {"requests": requests, "listing": listing})
    made = functools.partial(handler, directory=str(directory))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), made) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", requests
        finally:
            server.shutdown()
            thread.join()
