"""Ends a run on all ranks when one of them has ended.

Each rank keeps a connection to rank 0 on which nothing is sent as long as all is well. The system closes it when a
process ends, however it ends, and notices within 20 seconds when a machine is lost. A thread of each rank waits for
that: the main thread may be waiting for an all-reduce that never returns.
"""

import json
import os
import selectors
import socket
import struct
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from vmt.progress import as_vmt
from vmt.ranks.launch import Launch

LOST, REFUSED = 1, 2
"""The exit codes of a rank after another was lost, and after bad input on another."""
# A fault in the input is usually found by all ranks. They get this many seconds to find it themselves.
PATIENCE = 3.0
# Seconds after which a machine that does not answer counts as lost: the first silence, then four tests.
SILENCE, BETWEEN_TESTS, TESTS = 4, 4, 4


class Watch:
    """The connections between rank 0 and the others, from :meth:`open` until :meth:`leave` or :meth:`fail`."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.peers: dict[int, socket.socket] = {}
        self.how_to_resume: Callable[[], str] = str
        """Returns how the run can be resumed, as the end of a sentence."""
        self.has_left = threading.Event()
        self.has_stopped = threading.Event()
        self.thread = threading.Thread(target=self.wait_for_the_end, name="vmt-watch", daemon=True)

    def open(self, tell_port: Callable[[int | None], int]) -> None:
        """Connect all ranks. ``tell_port`` gives every rank the port on which rank 0 listens."""
        here = self.launch
        if here.rank == 0:
            both = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if both else socket.AF_INET
            with socket.create_server(("", 0), family=family, backlog=here.count, dualstack_ipv6=both) as server:
                tell_port(server.getsockname()[1])
                for _ in range(here.count - 1):
                    peer, _address = server.accept()
                    self.peers[struct.unpack("!i", receive(peer, 4))[0]] = peer
        else:
            peer = socket.create_connection((here.address, tell_port(None)), timeout=60)
            peer.settimeout(None)
            peer.sendall(struct.pack("!i", here.rank))
            self.peers[0] = peer
        for peer in self.peers.values():
            detect_silence(peer)
        self.thread.start()

    def leave(self, all_here: Callable[[], None]) -> None:
        """Close the connections at the end of a run. ``all_here`` waits until all ranks have come here."""
        self.has_left.set()
        all_here()
        self.close()

    def fail(self, error: BaseException, is_input: bool) -> None:
        """Tell the others that this rank ends with an error; only rank 0 reports errors in the input."""
        self.has_left.set()
        if self.launch.rank == 0:
            self.tell_all({"stop": REFUSED if is_input else LOST})
        elif is_input:
            self.tell_all({"refused": str(error)})
            self.has_stopped.wait(2 * PATIENCE)  # rank 0 reports it; torchrun ends rank 0 as soon as this one has ended
        self.close()

    def close(self) -> None:
        for peer in self.peers.values():
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)  # which wakes the thread
        self.thread.join(PATIENCE)
        for peer in self.peers.values():
            peer.close()

    def tell_all(self, message: dict[str, Any]) -> None:
        for peer in self.peers.values():
            with suppress(OSError):
                peer.sendall(json.dumps(message).encode() + b"\n")

    def wait_for_the_end(self) -> None:
        """Wait until a peer sends a message or its connection ends. This is the work of the thread."""
        with selectors.DefaultSelector() as selector:
            for rank, peer in self.peers.items():
                selector.register(peer, selectors.EVENT_READ, rank)
            while not self.has_stopped.is_set():
                try:
                    ready = selector.select()
                except (OSError, ValueError):  # closed by the main thread
                    return
                for key, _ in ready:
                    message = next_message(self.peers[key.data])
                    if message is None and self.has_left.is_set():
                        self.has_stopped.set()
                        return
                    self.end(key.data, message)

    def end(self, rank: int, message: dict[str, Any] | None) -> None:
        """End this process because of another rank, unless it is ending by itself."""
        first = self.launch.rank == 0
        if message is None or "lost" in message:
            lost = rank if message is None else int(message["lost"])
            self.tell_all({"lost": lost})
            try:
                # One sentence on each machine; and if rank 0 is lost, its own machine still has one.
                if self.launch.local_rank == 0 or (lost == 0 and self.launch.rank == 1):
                    as_vmt(
                        f"rank {lost} of {self.launch.count} has ended unexpectedly, so the run has stopped on all "
                        f"ranks{self.how_to_resume()}.",
                        "red",
                    )
            finally:
                os._exit(LOST)  # also if nobody reads the sentence any more
        if self.has_left.wait(PATIENCE if first else 2 * PATIENCE):
            self.has_stopped.set()
            return
        try:
            if first:
                as_vmt(f"{message.get('refused', '').rstrip('.')} (on rank {rank}).", "red")
                self.tell_all({"stop": REFUSED})
                time.sleep(0.1)
        finally:
            os._exit(int(message.get("stop", REFUSED)))

    def wait_after_an_error(self) -> None:
        """Give the thread time to end the process: a broken connection often shows in an all-reduce first."""
        time.sleep(SILENCE + BETWEEN_TESTS * TESTS + 5)


def detect_silence(peer: socket.socket) -> None:
    """Let the system test a silent connection, so that the loss of a machine is noticed."""
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", SILENCE), ("TCP_KEEPINTVL", BETWEEN_TESTS), ("TCP_KEEPCNT", TESTS)):
        if hasattr(socket, name):  # not on every system
            peer.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def receive(peer: socket.socket, size: int) -> bytes:
    """Exactly this many bytes."""
    parts = b""
    while len(parts) < size:
        part = peer.recv(size - len(parts))
        if not part:
            raise ConnectionError("a rank has ended while the run was started")
        parts += part
    return parts


def next_message(peer: socket.socket) -> dict[str, Any] | None:
    """The next line of a peer; None if its connection has ended."""
    line = b""
    with suppress(OSError):
        while not line.endswith(b"\n"):
            part = peer.recv(1)
            if not part:
                return None
            line += part
        return dict(json.loads(line))
    return None
