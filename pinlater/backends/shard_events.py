"""The events that a shard tells its process: jobs that become pending, and jobs that end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol


class Notification(NamedTuple):
    """A store's message about a queue: `ready` jobs are eligible now, and the first of the others is at `due_ms`."""

    ready: int
    due_ms: int | None


UNKNOWN_CHANGE = Notification(0, None)
"""Something has changed, by whichever process, and perhaps in this queue: a look tells."""

OnNotification = Callable[[Notification | None], None]
"""Told the notifications of one queue; None: there will be none any more."""


class ShardEvents(Protocol):
    """What a shard tells its process, in its event loop, right behind the answer of the call or when it hears of it."""

    def jobs_freed(self, queue: str, run_after_ms: Sequence[int]) -> None:
        """Jobs of this queue became the first of their serialize keys, by a call of this process. A store whose
        `subscribe` returns True need not tell: these notifications come as well.
        """

    def jobs_ended(self, queue: str, ids: Sequence[int]) -> None:
        """Jobs that `watch_ends` named have ended, or are gone."""

    def store_moved(self) -> None:
        """Another machine has taken over the store. What went wrong with the former says nothing of it."""

    def claims_at_once(self, queue: str, jobs: int) -> bool:
        """Whether callers of this process wait who claim so many jobs of this queue as soon as they are stored: then a
        store need not notify others of them, unless they are left.
        """


class NoEvents:
    """Hears nothing."""

    def jobs_freed(self, queue: str, run_after_ms: Sequence[int]) -> None: ...

    def jobs_ended(self, queue: str, ids: Sequence[int]) -> None: ...

    def store_moved(self) -> None: ...

    def claims_at_once(self, queue: str, jobs: int) -> bool:
        return False
