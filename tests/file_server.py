"""A local web server that serves a file, reliably or not, for tests of downloads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """How the server answers requests; the last entry of a list applies to all requests that follow."""

    content: bytes
    ranges: bool = True
    announce: bool = True  # whether it sends the length of the content
    breaks_after: list[int | None] = field(default_factory=lambda: [None])  # bytes sent before it closes the connection
    statuses: list[int] = field(default_factory=lambda: [200])
    shift: int = 0  # its range starts this much later than requested
    asked: list[str | None] = field(default_factory=list)  # the requested ranges


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """The address of a server that runs during the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            nth = len(behaviour.asked)
            asked = self.headers.get("Range")
            behaviour.asked.append(asked)
            status = behaviour.statuses[min(nth, len(behaviour.statuses) - 1)]
            if status != 200:
                self.send_error(status)
                return
            size = len(behaviour.content)
            start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and behaviour.ranges else 0
            if asked and behaviour.ranges and start >= size:
                self.send_response(416)
                self.send_header("Content-Range", f"bytes */{size}")
                self.end_headers()
                return
            if start:
                start = max(0, start + behaviour.shift)
                self.send_response(206)
                self.send_header("Content-Range", f"bytes {start}-{size - 1}/{size}")
            else:
                self.send_response(200)
            body = behaviour.content[start:]
            if behaviour.announce:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            limit = behaviour.breaks_after[min(nth, len(behaviour.breaks_after) - 1)]
            self.wfile.write(body[:limit])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
