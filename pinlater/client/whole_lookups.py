"""Lookups that are whole: the bodies and results that one answer had no room for, fetched by further ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence

from pinlater.model import JobInfo

Look = Callable[[Sequence[str], bool, bool], Awaitable[Mapping[str, JobInfo]]]
"""Looks these jobs up in one call, with their bodies, and with their results."""


async def complete(found: dict[str, JobInfo], include_body: bool, include_result: bool, look: Look) -> None:
    """Fetch what was left out of an answer, until nothing is, or a server brings no more of it. Each answer has the
    values of one job at least. A job that is gone meanwhile is left out.
    """
    lacking = [name for name, info in found.items() if _lacks(info, include_body, len(found))]
    while lacking:
        lacking.sort(key=lambda name: found[name].body is not None)  # the first of a call gets a value in any case
        is_body = include_body and any(_lacks_body(found[name]) for name in lacking)
        again = await look(lacking, is_body, include_result)
        has_more = False
        for name in lacking:
            before, now = found[name], again.get(name)
            if now is None:
                del found[name]
                has_more = True
                continue
            if now.body is None and before.body is not None:
                now.body, now.body_left_out = before.body, None
            if now.result is None and before.result is not None:
                now.result, now.result_left_out = before.result, None
            has_more = has_more or (now.body, now.result) != (before.body, before.result)
            found[name] = now
        if not has_more:
            break
        lacking = [name for name in lacking if name in found and _lacks(found[name], include_body, len(lacking))]


def _lacks(info: JobInfo, include_body: bool, asked: int) -> bool:
    """An older server does not say what it left out of the answer about several jobs."""
    is_silent = include_body and info.body is None and asked > 1
    return bool(info.body_left_out or info.result_left_out) or is_silent


def _lacks_body(info: JobInfo) -> bool:
    return info.body is None
