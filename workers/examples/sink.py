"""A mail server that delivers to nobody: it counts, and refuses some as mail servers do.

Recipients whose names begin with "busy" are refused once with "not now" (450), those that begin with "nobody" always
(550).
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import Counter
from email import message_from_bytes
from typing import Self

from aiosmtpd.smtp import SMTP, Envelope, Session


class Sink:
    """Serves from a thread of its own, while the block lasts. `address`: HOST:PORT."""

    def __init__(self) -> None:
        self.address = ""
        self.deferred = 0
        self.refused = 0
        self._told_to_wait: set[str] = set()
        self._ids: Counter[str] = Counter()
        self._times: list[float] = []
        self._loop = asyncio.new_event_loop()
        self._over = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="smtp-sink")

    def __enter__(self) -> Self:
        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        self.address = f"{host}:{port}"
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        def connection() -> SMTP:
            return SMTP(self, hostname="sink", loop=self._loop)

        server = await self._loop.create_server(connection, sock=self._listener)
        await self._over.wait()
        server.close()

    @property
    def received(self) -> int:
        return len(self._times)

    @property
    def duplicates(self) -> int:
        """Mails that were received before, by their Message-ID."""
        return self.received - len(self._ids)

    @property
    def per_second(self) -> float:
        """From the first mail to the last."""
        return (self.received - 1) / (self._times[-1] - self._times[0]) if self.received > 1 else float(self.received)

    async def handle_RCPT(
        self, server: SMTP, session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if address.startswith("nobody"):
            self.refused += 1
            return "550 5.1.1 no such user"
        if address.startswith("busy") and address not in self._told_to_wait:
            self._told_to_wait.add(address)
            self.deferred += 1
            return "450 4.2.1 the mailbox is busy, try again later"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: SMTP, session: Session, envelope: Envelope) -> str:
        assert isinstance(envelope.content, bytes)
        self._ids[message_from_bytes(envelope.content)["Message-ID"]] += 1
        self._times.append(time.monotonic())
        return "250 accepted"
