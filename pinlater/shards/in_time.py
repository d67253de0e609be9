"""The same question to several shards, none of which may hold up the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeVar

from pinlater.errors import PinLaterError
from pinlater.shards.calls import HeldUp
from pinlater.shards.member import Member
from pinlater.shards.undo import GivingBack

R = TypeVar("R")


async def ask_in_time(
    members: Sequence[Member],
    call: Callable[[Member], Coroutine[Any, Any, R]],
    giving_back: GivingBack,
    undo: Callable[[Member, R], None] | None = None,
) -> list[R | PinLaterError]:
    """An answer or an error for each, in their order; HeldUp for one that takes longer than half its deadline, where
    another has answered by then.

    `undo` gets what such a shard brings later, and all that comes if the caller goes, or if a shard fails in a way
    that no store should; that failure is raised.
    """
    if len(members) == 1:  # nobody to hold up, and what its caller leaves behind the shard gives back itself
        return [await _outcome(call(members[0]))]
    loop = asyncio.get_running_loop()
    tasks = [loop.create_task(_outcome(call(member))) for member in members]
    try:
        late = await _in_time(tasks, max(member.deadline_ms for member in members) / 2000)
    except asyncio.CancelledError:
        _leave(zip(members, tasks, strict=True), giving_back, undo)
        raise
    failed = next((task for task in tasks if task not in late and task.exception() is not None), None)
    if failed is not None:
        _leave(zip(members, tasks, strict=True), giving_back, undo)
        return [failed.result()]
    if not late:
        return [task.result() for task in tasks]
    _leave([pair for pair in zip(members, tasks, strict=True) if pair[1] in late], giving_back, undo)
    return [
        HeldUp(f"shard {member.shard.shard_id}: others answered long before it") if task in late else task.result()
        for member, task in zip(members, tasks, strict=True)
    ]


async def _outcome(call: Coroutine[Any, Any, R]) -> R | PinLaterError:
    try:
        return await call
    except PinLaterError as error:
        return error.with_traceback(None)  # else whoever keeps the error keeps the frames of its call


async def _in_time(tasks: Sequence[asyncio.Task[Any]], patience_s: float) -> set[asyncio.Task[Any]]:
    """Wait for all; when the patience is over, only until one has answered. Those still under way then."""
    done, late = await asyncio.wait(tasks, timeout=patience_s)
    while late and not any(task.exception() or not isinstance(task.result(), PinLaterError) for task in done):
        more, late = await asyncio.wait(late, return_when=asyncio.FIRST_COMPLETED)
        done |= more
    return late


def _leave(
    asked: Iterable[tuple[Member, asyncio.Task[Any]]],
    giving_back: GivingBack,
    undo: Callable[[Member, Any], None] | None,
) -> None:
    """Nobody waits for these any more."""
    for member, task in asked:
        if undo is None:
            task.cancel()
        else:
            giving_back.after(task, _undoing(member, undo))


def _undoing(member: Member, undo: Callable[[Member, Any], None]) -> Callable[[asyncio.Task[Any]], None]:
    def ended(task: asyncio.Task[Any]) -> None:
        if not task.cancelled() and task.exception() is None and not isinstance(task.result(), PinLaterError):
            undo(member, task.result())

    return ended
