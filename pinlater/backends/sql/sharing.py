"""One thread for calls that are carried out together where several wait for it: they share one flush to the disk."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from queue import Empty
from typing import Any, TypeVar

from pinlater.backends.sql.threads import Call, Outcome, Threads, tell

Result = TypeVar("Result")
Together = Callable[[Sequence[Call]], Sequence[Outcome]]

SHARED_AT_MOST = 16
"""Calls that are carried out together: the first of them waits for the last."""


class SharedCall(Call):
    """One that is carried out by `together`: with others, or alone where it is large."""


class SmallCall(SharedCall):
    """One that takes but a moment."""


class SharingThread(Threads):
    """`together` carries out calls that follow each other: an outcome for each, in order."""

    def __init__(self, name: str, together: Together) -> None:
        self._together = together
        super().__init__(1, name)

    def share(self, is_small: bool, function: Callable[..., Result], *arguments: Any) -> asyncio.Future[Result]:
        """As `call`, by `together`."""
        kind = SmallCall if is_small else SharedCall
        return self._put(kind, function, arguments)

    def _take(self, call: Call) -> bool:
        if not isinstance(call, SharedCall):
            return super()._take(call)
        group, behind = self._group(call)
        calls = [each for each in group if not each.future.cancelled()]
        if calls:
            tell(zip(calls, self._together(calls), strict=True))
        return behind is None or self._take(behind)

    def _group(self, first: Call) -> tuple[list[Call], Call | None]:
        """The calls that are carried out with the first, and one that was taken from the line and goes behind them."""
        group = [first]
        while isinstance(group[-1], SmallCall) and len(group) < SHARED_AT_MOST:
            call = self._next_waiting()
            if not isinstance(call, SmallCall):
                return group, call
            group.append(call)
        return group, None

    def _next_waiting(self) -> Call | None:
        try:
            return self._calls.get_nowait()
        except Empty:
            return None
