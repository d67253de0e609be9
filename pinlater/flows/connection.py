"""The database of flows as the event loop uses it: on threads, and opened when it is first needed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pinlater.errors import FlowsUnavailable
from pinlater.model.owner_bounds import NO_BOUNDS, OwnerBounds

if TYPE_CHECKING:
    from pinlater.flows.database import FlowDatabase

T = TypeVar("T")

_THREADS = 4
"""Of a database that several can write to. An SQLite file has one."""

ANSWER_S = 20.0
"""A call that has no answer after so long is given up."""

CLOSE_S = 5.0


class FlowConnection:
    """`refusal`: why this server must not use its database now, "" where it may. `bounds`: what an owner may have."""

    def __init__(
        self,
        url: str,
        refusal: Callable[[], str] = str,
        bounds: Callable[[str], OwnerBounds] = lambda owner: NO_BOUNDS,
    ) -> None:
        self._url = url
        self._bounds = bounds
        self._refusal = refusal
        self._opening = threading.Lock()
        self._database: FlowDatabase | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def is_made(self) -> bool:
        """There may be flows in it: it is no file that is still to be made."""
        scheme, _, path = self._url.partition(":///")
        return scheme != "sqlite" or Path(path).exists()

    async def call(self, work: Callable[[FlowDatabase], T]) -> T:
        """What `work` makes of the database, on a thread. FlowsUnavailable, also where no answer came in time, and then
        it may have been done; and what it raises.
        """
        refusal = self._refusal()
        if refusal:
            raise FlowsUnavailable(refusal, retry_after_ms=1_000)
        if self._threads is None:
            amount = 1 if self._url.startswith("sqlite") else _THREADS
            self._threads = ThreadPoolExecutor(amount, thread_name_prefix="flows")
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.get_running_loop().run_in_executor(self._threads, self._do, work)
        except TimeoutError:
            raise FlowsUnavailable(
                f"the database of flows has not answered within {ANSWER_S:g} s: send it again", retry_after_ms=5_000
            ) from None

    def _do(self, work: Callable[[FlowDatabase], T]) -> T:
        if self._database is None:
            with self._opening:
                if self._database is None:
                    self._database = _opened(self._url, self._bounds)
        return work(self._database)

    async def close(self) -> None:
        """After the calls that are under way, if they end soon."""
        if self._threads is not None:
            last = self._threads.submit(int)
            self._threads.shutdown(wait=False)
            await asyncio.wait([asyncio.wrap_future(last)], timeout=CLOSE_S)
        if self._database is not None:
            self._database.close()


def _opened(url: str, bounds: Callable[[str], OwnerBounds]) -> FlowDatabase:
    # SQLAlchemy is loaded by the first flow, not by every server
    try:
        from pinlater.flows.database import FlowDatabase  # noqa: PLC0415

        database = FlowDatabase(url, bounds)
    except ImportError as error:
        message = f"the driver of the database of flows is not installed: {error.name or error}"
        raise FlowsUnavailable(message, retryable=False) from error
    database.open()
    return database
