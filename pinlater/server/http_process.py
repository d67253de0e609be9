"""The HTTP process, as the supervisor sees it: one child beside the server processes, which is a client of these.

The supervisor keeps the listening sockets, so connections wait while the child is replaced. It makes the token by which
the child proves to the servers that it may speak for callers whom it has identified, and one with which it looks at the
counts for its history; the servers get their hashes alone. All stay in memory. Where the child does not start, jobs are
served all the same.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from secrets import token_urlsafe
from typing import Any

import structlog

from pinlater.background_tasks import BackgroundTasks
from pinlater.child_process import module_command
from pinlater.listener import listening
from pinlater.server.generation import Generation, ProcessFailed, ProcessHandle, ServePlan

log = structlog.get_logger(__name__)
RETRY_S = 5.0
_SAYS_WHY = "what it has written to standard error says why; it is tried again"
OnReady = Callable[[str, Mapping[str, Any]], None]


class ProcessToken:
    """What proves the HTTP process of one supervisor; made anew at each start."""

    def __init__(self) -> None:
        self.text = "plt_" + token_urlsafe(32)
        self.hash = sha256(self.text.encode()).hexdigest()

    def __repr__(self) -> str:
        return "ProcessToken(…)"


@dataclass(frozen=True, slots=True)
class HttpTokens:
    """`gateway`: to speak for its callers; `history`: to look at counts and jobs itself."""

    gateway: ProcessToken = field(default_factory=ProcessToken)
    history: ProcessToken = field(default_factory=ProcessToken)

    def hashes(self) -> dict[str, str]:
        """What server processes are told."""
        return {"gateway_hash": self.gateway.hash, "history_hash": self.history.hash}


class HttpProcess:
    """Goes by the configuration that the newest server processes were started with. A Companion of the supervisor."""

    def __init__(self, tokens: HttpTokens, on_ready: OnReady = lambda url, config: None) -> None:
        """`on_ready` hears where it answers, and by which configuration, each time that a child has begun."""
        self._tokens = tokens
        self._on_ready = on_ready
        self._wanted: ServePlan | None = None
        self._changed = asyncio.Event()
        self._turning: asyncio.Task[None] | None = None
        self._listeners: list[socket.socket] = []
        self._address = "none"
        self._generation: Generation | None = None
        self._drains = BackgroundTasks()
        self._draining: set[Generation] = set()
        self._is_over = False

    @property
    def bound(self) -> str:
        """HOST:PORT that is listened on; "" while none is."""
        return _bound(self._address, self._listeners) if self._listeners else ""

    def living(self) -> list[ProcessHandle]:
        """Its processes, those that drain too."""
        generations = [*self._draining, *([] if self._generation is None else [self._generation])]
        return [process for generation in generations for process in generation.living()]

    async def started(self, plan: ServePlan) -> None:
        """Serve beside these. Returns at once: jobs wait for no page."""
        self._wanted = plan
        self._changed.set()
        if self._turning is None:
            self._turning = asyncio.ensure_future(self._turn())

    async def drain(self) -> None:
        if self._turning is not None:
            self._turning.cancel()
            with suppress(asyncio.CancelledError):
                await self._turning
        await self._follow_none()
        await self._drains.drain()

    def hurry(self) -> None:
        for generation in self._draining:
            generation.hurry()

    async def _turn(self) -> None:
        """One change after the other; what did not succeed is tried again."""
        failed = False
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if failed else None):
                    await self._changed.wait()
                failed = False  # another configuration: its mistakes are told anew
            self._changed.clear()
            plan = self._wanted
            assert plan is not None
            if self._is_over:
                self._is_over, failed = False, True
                address = self._address
                await self._follow_none()
                reason = "its process ends whenever it is started"
                log.error("api_not_served", address=address, reason=reason, hint=_SAYS_WHY)
                continue
            try:
                await self._follow(plan)
            except (OSError, ProcessFailed) as error:
                if not failed:
                    address = plan.payload["config"]["api"]
                    reason = getattr(error, "strerror", None) or str(error)
                    hint = "it is tried again; or choose another --api" if isinstance(error, OSError) else _SAYS_WHY
                    log.error("api_not_served", address=address, reason=reason, hint=hint)
                failed = True
            except Exception:
                log.exception("api_not_served", address=plan.payload["config"]["api"])
                failed = True
            else:
                failed = False

    async def _follow(self, plan: ServePlan) -> None:
        config: Mapping[str, Any] = plan.payload["config"]
        address: str = config["api"]
        if address == "none":
            await self._follow_none()
            return
        if address != self._address:
            host, _, port = address.rpartition(":")
            opened = listening(host.strip("[]"), int(port))
            await self._follow_none()
            self._address, self._listeners = address, opened
        new = Generation(
            ServePlan(
                host="",
                port=0,
                processes=1,
                command=module_command("pinlater.api_process"),
                payload={
                    "config": {**config, "stores": [], "admin_password_hash": ""},  # it needs no store's password
                    "server": plan.payload["address"],
                    "bound": self.bound,
                    "token": self._tokens.gateway.text,
                    "history_token": self._tokens.history.text,
                    "drain_timeout_ms": plan.drain_timeout_ms,
                },
                drain_timeout_ms=plan.drain_timeout_ms,
                facts={},
                on_over=self._end_serving,
                what="api",
                listeners=self._listeners,
            )
        )
        try:
            await new.start()
        except (OSError, ProcessFailed):
            if self._generation is None:
                await self._follow_none()
            raise
        old, self._generation = self._generation, new
        url = f"{'https' if config.get('tls_cert') else 'http'}://{self.bound}{config['api_prefix']}/"
        log.info("api_ready", address=url, dashboard=f"{url}dashboard", api=new.pids()[0])
        self._retire(old)
        self._on_ready(url, config)

    def _end_serving(self) -> None:
        """No child comes to serve any more: callers are refused, where they would wait for nothing."""
        if self._generation is not None and not self._generation.answers():
            self._is_over = True
            self._changed.set()

    async def _follow_none(self) -> None:
        for listener in self._listeners:
            listener.close()
        self._address, self._listeners = "none", []
        old, self._generation = self._generation, None
        self._retire(old)

    def _retire(self, old: Generation | None) -> None:
        if old is not None:
            self._draining.add(old)
            self._drains.start(self._drained(old))

    async def _drained(self, old: Generation) -> None:
        await old.drain()
        self._draining.discard(old)


def _bound(address: str, listeners: Sequence[socket.socket]) -> str:
    return f"{address.rpartition(':')[0]}:{listeners[0].getsockname()[1]}"
