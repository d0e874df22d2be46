"""An object store on this machine: as much of S3 as s3fs asks for, failing on demand."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

import pytest

#: Told the method and the key of a request before it is done: what it gives is the status of an
#: error that is answered in its place, 0 to hang up, None to go on.
Trouble = Callable[[str, str], int | None]


class ObjectStore:
    """Objects by `bucket/key`, and what was asked for, in order."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.requests: list[tuple[str, str]] = []
        self.trouble: Trouble = lambda method, key: None

    def names(self, prefix: str) -> list[str]:
        """The keys after a prefix, sorted."""
        return sorted(key[len(prefix) :] for key in self.objects if key.startswith(prefix))

    def puts(self) -> int:
        """How many objects were written so far."""
        return sum(method == "PUT" for method, _ in self.requests)


@contextmanager
def object_store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ObjectStore]:
    """A store that `s3://` means, in this process and in those that it starts."""
    import s3fs

    store = ObjectStore()

    class Bound(_Handler):
        objects = store

    server = ThreadingHTTPServer(("127.0.0.1", 0), Bound)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.server_address[1]}",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_CONFIG_FILE": "/dev/null",
        "AWS_SHARED_CREDENTIALS_FILE": "/dev/null",
        "AWS_MAX_ATTEMPTS": "1",
    }.items():
        monkeypatch.setenv(name, value)
    # A file system is kept by its options, of which the address is none.
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield store
    finally:
        s3fs.S3FileSystem.clear_instance_cache()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    objects: ObjectStore
    protocol_version = "HTTP/1.1"

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        self._answer_to("GET")

    def do_HEAD(self) -> None:
        self._answer_to("HEAD")

    def do_PUT(self) -> None:
        self._answer_to("PUT")

    def do_DELETE(self) -> None:
        self._answer_to("DELETE")

    def do_POST(self) -> None:
        self._answer_to("POST")

    def log_message(self, *words: object) -> None:
        """Nothing is shown."""

    def _answer_to(self, method: str) -> None:
        body = self._body()
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, True).items()}
        key = unquote(url.path).lstrip("/")
        self.objects.requests.append((method, key))
        wrong = self.objects.trouble(method, key)
        if wrong == 0:
            self.close_connection = True
        elif wrong is not None:
            self._refuse(wrong, "AccessDenied" if wrong == 403 else "InternalError")
        elif method == "PUT":
            self.objects.objects[key] = body
            self._send(200, b"", ETag=_tag(body))
        elif method == "DELETE":
            self.objects.objects.pop(key, None)
            self._send(204, b"")
        elif method == "POST" and "delete" in query:
            self._delete_many(key, body)
        elif method == "GET" and "list-type" in query:
            self._list(key.rstrip("/"), query)
        elif method in ("GET", "HEAD") and key in self.objects.objects:
            self._give(self.objects.objects[key])
        else:
            self._refuse(404, "NoSuchKey")

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        whole, rest = b"", data
        while rest:
            line, _, rest = rest.partition(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            if not size:
                break
            whole, rest = whole + rest[:size], rest[size + 2 :]
        return whole

    def _give(self, content: bytes) -> None:
        asked = self.headers.get("Range")
        tag = _tag(content)
        if asked is None:
            self._send(200, content, ETag=tag)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        start, end = int(first), min(int(last or len(content)), len(content) - 1)
        if start >= len(content):
            self._refuse(416, "InvalidRange")
            return
        place = f"bytes {start}-{end}/{len(content)}"
        self._send(206, content[start : end + 1], ETag=tag, Content_Range=place)

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        found, folders = [], set()
        for key in self.objects.names(f"{bucket}/"):
            if not key.startswith(prefix):
                continue
            head, cut, _ = key[len(prefix) :].partition(delimiter) if delimiter else (key, "", "")
            if cut:
                folders.add(prefix + head + cut)
            else:
                found.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(content)}</Size>"
            f"<ETag>{_tag(content)}</ETag><LastModified>2024-01-01T00:00:00Z</LastModified>"
            "</Contents>"
            for key in found
            for content in [self.objects.objects[f"{bucket}/{key}"]]
        )
        contents += "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        listing = (
            f"<ListBucketResult><Name>{bucket}</Name><IsTruncated>false</IsTruncated>"
            f"<KeyCount>{len(found) + len(folders)}</KeyCount>{contents}"
            "</ListBucketResult>"
        )
        self._send(200, listing.encode())

    def _delete_many(self, bucket: str, body: bytes) -> None:
        for element in ElementTree.fromstring(body).iter():
            if element.tag.rpartition("}")[2] == "Key":
                self.objects.objects.pop(f"{bucket.rstrip('/')}/{element.text}", None)
        self._send(200, b"<DeleteResult></DeleteResult>")

    def _refuse(self, status: int, code: str) -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
        self._send(status, text.encode())

    def _send(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Type", "application/xml")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _tag(content: bytes) -> str:
    return f'"{hashlib.md5(content).hexdigest()}"'
