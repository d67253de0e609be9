"""One service over one empty store, bare and under each of the layers that may stand between it and a caller."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pinlater.access.fair_use import FairUse, UseLimits
from pinlater.access.gate import Gate
from pinlater.access.guesses import TokenGuesses
from pinlater.access.rules_file import RulesFile
from pinlater.access.tokens import TokenBook
from pinlater.api import Api
from pinlater.backends.base import Shard
from pinlater.backends.sql.sqlite import SqliteShard
from pinlater.client.async_client import AsyncClient
from pinlater.errors import PinLaterError
from pinlater.model import (
    ANONYMOUS,
    Cancelled,
    DequeuedFromQueues,
    DequeuedJob,
    DequeueRequest,
    EnqueuedJobs,
    Job,
    RequestContext,
)
from pinlater.queues.directory import QueueDirectory
from pinlater.service import ClaimTokens, Service
from pinlater.shards.handle import ShardHandle
from pinlater.shards.router import Router
from pinlater.shards.shard_set import ShardSet
from tests.conformance.chain import chained, tiered
from tests.server.serving import serving
from tests.unit.breaking import HeldClock
from tests.unit.overflow_stand import process

LAYERS = ("chain", "tier", "overflow", "gate")
QUEUE = "mail"
WORKER = RequestContext("worker:7")
NAMED_BY_GATE = f"{ANONYMOUS} ({WORKER.source})"
"""Where rules are in force it says beside whom that a caller has proved to be nobody."""

RULES = '[[rules]]\nwho = ["anonymous"]\nmay = ["read", "enqueue", "consume", "operate"]\n'
NEVER_MS = 3_600_000

_NAME = re.compile(r"[\w-]+:s\w+:p\d+:\d{16}|[\w-]+:\d+:\d+:\d+(?:r\d+)?:[\w:]*", re.ASCII)
_NOT_COMPARED = {"body_stored_at", "dedupe_for_ms", "quotes_stores"}
"""Where a body lies is the layer's own; and what no client is told."""


@dataclass
class Layer:
    """What callers of a layer see. Its answers name jobs and claims by the order in which they first appear, so those
    of two layers are equal where they say the same.
    """

    api: Api
    clock: HeldClock
    over: str
    """The layer that the table is about, also while it is carried out on the bare store."""

    def __post_init__(self) -> None:
        self._names: dict[str, str] = {}

    async def running(self, *bodies: bytes) -> list[DequeuedJob]:
        """New jobs, claimed one by one, in the order given."""
        await self.api.enqueue(QUEUE, [Job(body, attempts_allowed=3) for body in bodies], context=WORKER)
        return [(await self.api.dequeue(DequeueRequest(QUEUE, 1), context=WORKER))[0] for _ in bodies]

    async def answer(self, call: Awaitable[Any]) -> Any:
        """What a call says, its error where it fails: PinLaterErrors alone."""
        try:
            return self.shown(await call)
        except PinLaterError as error:
            said = [type(error).__name__, error.reason, error.acks_applied]
            if self.over == "overflow" or error.reason == "DUPLICATE":
                return said  # an overflow says it of both parts of a call, and a client finds duplicates out itself
            return [*said, self.shown(error.message.removeprefix(f"{error.reason}: "))]

    def shown(self, value: Any) -> Any:
        if isinstance(value, str):
            if value == NAMED_BY_GATE:
                return WORKER.source
            return _NAME.sub(lambda found: self._named(found[0]), value)
        if isinstance(value, bytes):
            assert type(value) is bytes
            return value if len(value) < 300 else f"{len(value)} bytes, {sha256(value).hexdigest()[:8]}"
        if isinstance(value, DequeuedFromQueues):
            errors = {queue: type(error).__name__ for queue, error in value.queue_errors.items()}
            return [*map(self.shown, value), errors, [list(each) for each in value.ack_outcomes]]
        if isinstance(value, EnqueuedJobs):
            return [*map(self.shown, value), *value.outcomes]
        if isinstance(value, Cancelled):
            return {self.shown(key): each for key, each in value.items()}, value.by_key
        if is_dataclass(value):
            names = [each.name for each in fields(value) if each.name not in _NOT_COMPARED]
            return {name: self.shown(getattr(value, name)) for name in names}
        if isinstance(value, Mapping):
            return {self.shown(key): self.shown(each) for key, each in value.items()}
        if isinstance(value, Sequence):
            return [*map(self.shown, value), *map(self.shown, getattr(value, "ack_outcomes", ()))]
        return value

    def _named(self, text: str) -> str:
        kind = "job" if text.count(":") == 3 else "claim"
        return self._names.setdefault(text, f"<{kind} {len(self._names)}>")


@asynccontextmanager
async def layer(name: str, folder: Path, *, over: str = "") -> AsyncIterator[Layer]:
    """`bare` is the store itself; each of LAYERS has what it needs in the folder."""
    over = over or name
    if name == "overflow":
        async with process(folder, bound=2**30) as at:
            at.lose_shards()
            yield Layer(at.api, at.clock, over)
        return
    async with AsyncExitStack() as stack:
        clock = HeldClock()
        shard: Shard = SqliteShard("sqlite://", "1")
        if name == "chain":
            shard = chained(shard, clock=clock)
        elif name in ("tier", "gate"):
            shard = tiered(shard, folder / "tier")
            await shard.tiers.open()
            stack.push_async_callback(shard.tiers.close)
        members = ShardSet([ShardHandle(shard, clock)], clock, watch_interval_ms=NEVER_MS)
        service = Service(Router(members), clock, ClaimTokens("here", 1, clock.now_ms()))
        await service.open()
        stack.push_async_callback(service.close)
        members.all[0].skew_ms = 0
        await service.create_queue(QUEUE)
        if name != "gate":
            yield Layer(service, clock, over)
            return
        rules = folder / "rules.toml"
        rules.write_text(RULES)
        book = TokenBook(QueueDirectory(members, clock), members, clock)
        gate = Gate(book, clock, _refused, TokenGuesses(_refused), FairUse(UseLimits()), RulesFile(rules))
        served = await stack.enter_async_context(serving(service, clock, gate=gate))
        client = AsyncClient(f"127.0.0.1:{served.port}", source=WORKER.source, retry_unavailable=False)
        yield Layer(await stack.enter_async_context(client), clock, over)


def _refused(*said: object) -> None:
    raise AssertionError(said)
