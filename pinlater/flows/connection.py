"""The database of flows as the event loop uses it: on threads, and opened when it is first needed."""

from __future__ import annotations

import asyncio
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

OPEN_S = 3.0
"""Its first opening, which loads SQLAlchemy, may take longer on a machine that has much to do: that is no fault of it.
Less than pages of the dashboard wait.
"""

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
        self._opening: asyncio.Future[FlowDatabase] | None = None
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
        database = self._database or await self._open(self._threads)
        try:
            async with asyncio.timeout(ANSWER_S):
                return await asyncio.get_running_loop().run_in_executor(self._threads, work, database)
        except TimeoutError:
            raise FlowsUnavailable(
                f"the database of flows has not answered within {ANSWER_S:g} s: send it again", retry_after_ms=5_000
            ) from None

    async def _open(self, threads: ThreadPoolExecutor) -> FlowDatabase:
        """Once for all who need it. It goes on where it takes longer than they wait; then nothing of theirs is done."""
        if self._opening is None:
            self._opening = asyncio.get_running_loop().run_in_executor(threads, open_database, self._url, self._bounds)
            self._opening.add_done_callback(self._end_opening)
        done, _ = await asyncio.wait([self._opening], timeout=OPEN_S)
        for opening in done:
            return opening.result()
        raise FlowsUnavailable(
            "the database of flows is still being opened: send it again in a moment", retry_after_ms=1_000
        )

    def _end_opening(self, opening: asyncio.Future[FlowDatabase]) -> None:
        """Where it failed the next call tries again."""
        self._opening = None
        if not opening.cancelled() and opening.exception() is None:
            self._database = opening.result()

    async def close(self) -> None:
        """After the calls that are under way, if they end soon."""
        if self._opening is not None:
            await asyncio.wait([self._opening], timeout=CLOSE_S)
        if self._threads is not None:
            last = self._threads.submit(int)
            self._threads.shutdown(wait=False)
            await asyncio.wait([asyncio.wrap_future(last)], timeout=CLOSE_S)
        if self._database is not None:
            self._database.close()


def open_database(url: str, bounds: Callable[[str], OwnerBounds]) -> FlowDatabase:
    # SQLAlchemy is loaded by the first flow, not by every server
    try:
        from pinlater.flows.database import FlowDatabase  # noqa: PLC0415

        database = FlowDatabase(url, bounds)
    except ImportError as error:
        message = f"the driver of the database of flows is not installed: {error.name or error}"
        raise FlowsUnavailable(message, retryable=False) from error
    database.open()
    return database
