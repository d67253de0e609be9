"""One tier: an object store whose calls are bounded in time and number, behind a circuit breaker.

A call that takes longer than its bound fails, and may have been carried out all the same. After FAILURES in a row of
one kind (put, get) no call of that kind is tried for a pause, which doubles from FIRST_PAUSE_MS to LONGEST_PAUSE_MS;
then one call tries, and the others go on without it until it has an answer.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from pinlater.bodies.object_store import FolderStore, ObjectStore, StoreInvalid
from pinlater.bodies.object_store import StoredObject as StoredObject
from pinlater.clock import Clock
from pinlater.config.body_rules import shown_url
from pinlater.errors import BodyGone, TierUnavailable, install_command
from pinlater.metrics import Metrics
from pinlater.redaction import redact

R = TypeVar("R")
FAILURES = 5
FIRST_PAUSE_MS, LONGEST_PAUSE_MS = 1_000, 30_000
LATELY_MS = 300_000
MAX_PUTS, MAX_GETS = 64, 64
MAX_OF_QUEUE = {"put": 32, "get": 16}
"""Under way at a time, per process."""

LIST_S = 60.0
"""How long a page of a listing, or a deletion, may take: nobody waits for them."""


def object_store(url: str) -> ObjectStore:
    """The store of a tier's URL. StoreInvalid."""
    parts = urlsplit(url)
    if parts.scheme == "file":
        if parts.netloc or not parts.path.strip("/"):
            raise StoreInvalid(f"{url} names no folder: write file:///PATH, with three slashes")
        return FolderStore(Path(unquote(parts.path)))
    if not parts.netloc:
        raise StoreInvalid(f"{url} names no bucket: write {parts.scheme}://BUCKET/PREFIX")
    try:
        from pinlater.bodies.bucket_store import BucketStore  # noqa: PLC0415  # its libraries are an extra
    except ModuleNotFoundError as missing:
        raise StoreInvalid(
            f"a tier at {parts.scheme}:// needs the Python package {missing.name}: {install_command('bodies')}"
        ) from missing
    return BucketStore(parts.scheme, parts.netloc, parts.path.strip("/"), dict(parse_qsl(parts.query)))


class CircuitBreaker:
    """The breaker of calls of one kind. `clock` is one that nobody sets."""

    def __init__(self, clock: Clock) -> None:
        self.why = ""
        """Why calls are not tried now; "" while they are."""
        self._clock = clock
        self._failures = 0
        self._pause_ms = 0
        self._until_ms = 0
        self._is_trying = False

    def admits(self) -> bool:
        """Whether a call may be made now. Of those that are to try whether all is well again it is one at a time."""
        if not self.why:
            return True
        if self._is_trying or self._clock.now_ms() < self._until_ms:
            return False
        self._is_trying = True
        return True

    @property
    def why_lately(self) -> str:
        """`why`, for as long as that was tried lately: nobody may need the tier any more."""
        return self.why if self._clock.now_ms() - self._until_ms < LATELY_MS else ""

    def left_ms(self) -> int:
        """Until the next try."""
        return max(100, self._until_ms - self._clock.now_ms())

    def succeeded(self) -> None:
        self._failures = self._pause_ms = 0
        self._is_trying, self.why = False, ""

    def failed(self, why: str) -> None:
        self._failures += 1
        self._is_trying = False
        if self._failures >= FAILURES:
            self._pause_ms = min(2 * self._pause_ms, LONGEST_PAUSE_MS) or FIRST_PAUSE_MS
            self._until_ms = self._clock.now_ms() + self._pause_ms
            self.why = why

    def left(self) -> None:
        """A call ended without an answer that says anything."""
        self._is_trying = False


class Tier:
    """Bodies by path. `put_ms` and `get_ms` bound a call with its wait for a turn."""

    def __init__(self, name: str, url: str, clock: Clock, metrics: Metrics, *, put_ms: int, get_ms: int) -> None:
        """StoreInvalid."""
        self.name = name
        self.url = shown_url(url)
        self._store: ObjectStore = object_store(url)
        self._metrics = metrics
        self._put_s, self._get_s = put_ms / 1000, get_ms / 1000
        self._puts, self._gets = CircuitBreaker(clock), CircuitBreaker(clock)
        self._put_turns, self._get_turns = asyncio.Semaphore(MAX_PUTS), asyncio.Semaphore(MAX_GETS)
        self._queue_turns: dict[tuple[str, str], asyncio.Semaphore] = {}
        self._users: Counter[tuple[str, str]] = Counter()
        self._not_opened = ""

    @property
    def error(self) -> str:
        """Why it is not used now; "" while it is."""
        return self._not_opened or self._puts.why or self._gets.why

    @property
    def away(self) -> str:
        """Why it cannot be used, as far as that was tried in the last minutes; "" where it can."""
        return self._not_opened or self._puts.why_lately or self._gets.why_lately

    async def open(self) -> None:
        """Try it once. Raises nothing: see `error`."""
        try:
            async with asyncio.timeout(self._get_s):
                await self._store.open()
            self._not_opened = ""
        except Exception as error:
            self._not_opened = _one_line(error)

    async def close(self) -> None:
        await self._store.close()

    async def put(self, path: str, body: bytes, *, queue: str = "") -> None:
        """TierUnavailable: it may be there all the same. `queue`: no more than a share of the calls is for one."""
        if self._not_opened:
            await self._open_again()
        with self._turns("put", queue) as turns:
            await self._call(
                "put", self._puts, (turns, self._put_turns), self._put_s, lambda: self._store.put(path, body)
            )

    async def _open_again(self) -> None:
        """A folder that was not there at the start may be now."""
        if not self._puts.admits():
            raise self._refused("put", self._puts)
        self._puts.left()
        await self.open()
        if self._not_opened:
            self._puts.failed(self._not_opened)
            raise TierUnavailable(f"tier {self.name} ({self.url}): {self._not_opened}", retry_after_ms=1_000)

    async def get(self, path: str, *, queue: str = "") -> bytes:
        """TierUnavailable; BodyGone: it is not there. `queue`: no more than a share of the calls is for one."""
        with self._turns("get", queue) as turns:
            return await self._call(
                "get", self._gets, (turns, self._get_turns), self._get_s, lambda: self._store.get(path)
            )

    @contextmanager
    def _turns(self, kind: str, queue: str) -> Iterator[asyncio.Semaphore]:
        """Those of one queue."""
        of_queue = kind, queue
        turns = self._queue_turns.setdefault(of_queue, asyncio.Semaphore(MAX_OF_QUEUE[kind]))
        self._users[of_queue] += 1
        try:
            yield turns
        finally:
            self._users[of_queue] -= 1
            if not self._users[of_queue]:
                del self._users[of_queue], self._queue_turns[of_queue]

    def _refused(self, kind: str, breaker: CircuitBreaker) -> TierUnavailable:
        return TierUnavailable(
            f"tier {self.name} ({self.url}) is left alone after {FAILURES} failures: {breaker.why}",
            retry_after_ms=breaker.left_ms(),
        )

    async def _call(
        self,
        kind: str,
        breaker: CircuitBreaker,
        turns: tuple[asyncio.Semaphore, asyncio.Semaphore],
        patience_s: float,
        call: Callable[[], Coroutine[Any, Any, R]],
    ) -> R:
        loop = asyncio.get_running_loop()
        begun_at: float | None = None
        try:
            async with asyncio.timeout(patience_s), turns[0], turns[1]:
                if not breaker.admits():
                    raise self._refused(kind, breaker)
                begun_at = loop.time()
                answer = await call()
        except TierUnavailable:
            raise
        except FileNotFoundError as error:
            breaker.succeeded()
            raise BodyGone(f"tier {self.name} ({self.url}) does not have it") from error
        except asyncio.CancelledError:
            if begun_at is not None:
                breaker.left()
            raise
        except Exception as error:
            why = _one_line(error)
            if begun_at is None:
                why = f"too many bodies are on their way: no turn for a {kind} within {patience_s:g} s"
            else:
                if isinstance(error, TimeoutError):
                    why = f"no answer to a {kind} within {patience_s:g} s"
                breaker.failed(why)
                self._metrics.add(1, "body_failures", self.name, kind)
            raise TierUnavailable(f"tier {self.name} ({self.url}): {why}", retry_after_ms=1_000) from error
        breaker.succeeded()
        self._metrics.observe(loop.time() - begun_at, "body_seconds", self.name, kind)
        return answer

    # -- what nobody waits for -----------------------------------------------------------------------------------------

    async def delete(self, paths: Sequence[str]) -> None:
        """What is not there is no error. TierUnavailable: some may be gone."""
        await self._bounded(self._store.delete(paths))

    async def pages(self, prefix: str) -> AsyncIterator[list[StoredObject]]:
        """All objects below, a page at a time. TierUnavailable."""
        pages = aiter(self._store.pages(prefix))
        while True:
            page = await self._bounded(anext(pages, None))
            if page is None:
                return
            yield page

    async def children(self) -> list[str]:
        """The names of the folders at the top. TierUnavailable."""
        return await self._bounded(self._store.children())

    async def _bounded(self, call: Coroutine[Any, Any, R]) -> R:
        try:
            async with asyncio.timeout(LIST_S):
                return await call
        except Exception as error:
            raise TierUnavailable(f"tier {self.name} ({self.url}): {_one_line(error)}", retry_after_ms=1_000) from error


def _one_line(error: BaseException) -> str:
    """An error of a store in one line, and no longer than a line."""
    text = redact(" ".join((str(error) or type(error).__name__).split()))
    return text if len(text) <= 300 else text[:300] + "…"
