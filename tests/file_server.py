"""A web server on this machine that serves a file well or badly, for tests of downloads."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Behaviour:
    """What the server does with the requests that come, in order; the last entry holds for all that follow."""

    content: bytes
    ranges: bool = True
    announce: bool = True  # whether it says how long the content is
    breaks_after: list[int | None] = field(default_factory=lambda: [None])  # bytes sent before it hangs up
    statuses: list[int] = field(default_factory=lambda: [200])
    shift: int = 0  # it answers with a range that starts this much later than asked
    asked: list[str | None] = field(default_factory=list)  # the ranges that were asked for


@contextmanager
def serving(behaviour: Behaviour) -> Iterator[str]:
    """The address of a server that is up for as long as the block runs."""

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
