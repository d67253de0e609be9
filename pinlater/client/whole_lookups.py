"""Lookups that are whole: the bodies and results that one answer had no room for, fetched by further ones."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from pinlater.model import JobInfo

Lookup = Callable[[Sequence[str], bool, bool], Awaitable[Mapping[str, JobInfo]]]
"""Looks these jobs up in one call, with their bodies, and with their results."""


async def complete(found: dict[str, JobInfo], include_body: bool, include_result: bool, lookup: Lookup) -> None:
    """Fetch what was left out of an answer, until nothing is, or a server brings no more of it. Each answer has the
    values of one job at least. A job that is gone meanwhile is left out.
    """
    lacking = _lacking(found, found, include_body)
    while lacking:
        lacking.sort(key=lambda name: found[name].body is not None)  # the first of a call gets a value in any case
        is_body = include_body and any(_lacks_body(found[name]) for name in lacking)
        again = await lookup(lacking, is_body, include_result)
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
        lacking = _lacking(found, lacking, include_body)


def _lacking(found: Mapping[str, JobInfo], names: Collection[str], include_body: bool) -> list[str]:
    """Those of these jobs of which something was left out. An older server does not say so in an answer about several
    jobs: there each job without a body may be one, where else it is one that is gone.
    """
    present = [name for name in names if name in found]
    left_out = [name for name in present if found[name].body_left_out or found[name].result_left_out]
    if left_out or not include_body or len(names) == 1:
        return left_out
    return [name for name in present if found[name].body is None]


def _lacks_body(info: JobInfo) -> bool:
    return info.body is None
