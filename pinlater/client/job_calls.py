"""The calls of AsyncClient about jobs by name: by descriptor, or by key."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any, overload

from pinlater.client.argument_kinds import checked
from pinlater.client.capabilities import KEYS
from pinlater.client.client_calls import ClientCalls
from pinlater.client.job_arguments import by_queue, check_time, named_jobs
from pinlater.client.joined_waits import JoinedWaits
from pinlater.client.whole_lookups import complete
from pinlater.errors import RequestInvalid
from pinlater.model import (
    Cancelled,
    Heartbeat,
    HeartbeatAnswers,
    JobInfo,
    KeyRef,
    RequestContext,
    RescheduleJob,
    RescheduleOutcome,
    WorkerReport,
)
from pinlater.wire import methods
from pinlater.wire.convert import heartbeat_answers_from_wire

LOOKED_UP_AT_ONCE = 10_000
"""More would be more than a client reads of one answer."""


class JobCalls(ClientCalls):
    """A part of AsyncClient."""

    _waits_no_more: bool
    _whole_lookups: bool

    def __init__(self) -> None:
        super().__init__()
        self._waits: dict[tuple[bool, bool], JoinedWaits] = {}

    # -- workers ---------------------------------------------------------------------------------------------------

    @checked
    async def heartbeat(
        self,
        queue: str,
        heartbeats: Sequence[Heartbeat],
        *,
        worker: WorkerReport | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> HeartbeatAnswers:
        """Renew claims, and change nothing else but the progress; an answer per heartbeat, in order.

        LOST: the job may run elsewhere. CANCEL: it is to stop. MethodUnknown: an older server; `checkpoint` is a
        heartbeat there. `command` of the answers: an operator's order to the worker whose report goes along.
        """
        response = await self._call(methods.HEARTBEAT, context, timeout, queue, heartbeats, worker)
        return heartbeat_answers_from_wire(heartbeats, response)

    # -- looking ---------------------------------------------------------------------------------------------------

    @overload
    async def lookup(
        self,
        queue: str,
        descriptors: Sequence[str],
        *,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        keys: Sequence[KeyRef] = (),
        include_trail: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]: ...

    @overload
    async def lookup(
        self,
        descriptors: Sequence[str] = (),
        /,
        *,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str = "",
        keys: Sequence[KeyRef] = (),
        include_trail: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]: ...

    @overload
    async def lookup(
        self,
        *,
        descriptors: Sequence[str],
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        keys: Sequence[KeyRef] = (),
        include_trail: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]: ...

    @checked
    async def lookup(
        self,
        *named: str | Sequence[str],
        descriptors: Sequence[str] | None = None,
        include_body: bool = False,
        include_result: bool = False,
        wait_ms: int = 0,
        queue: str | None = None,
        keys: Sequence[KeyRef] = (),
        include_trail: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> dict[str, JobInfo]:
        """Return the jobs that exist, by descriptor; others are left out.

        Descriptors name their queue; with a `queue`, only its jobs count. Keys are of jobs of `queue`. More jobs,
        bodies and results than one answer holds take several calls. `include_trail`: with their attempts and log lines.
        With `wait_ms`, the answer comes when the first of these jobs has ended or is not there, or after that time;
        `wait` does more. RequestInvalid: a text that is no descriptor.
        """
        queue, descriptors = named_jobs(named, queue, descriptors, keys)
        if queue is not None:
            descriptors = by_queue(descriptors).get(queue, [])
        ends_s = self._deadline_s(timeout) + wait_ms / 1000
        if wait_ms:
            found = await self._wait_once(
                queue or "", descriptors, keys, include_body, include_result, include_trail, wait_ms, context, timeout
            )
        else:
            found = await self._lookup_answers(
                queue, descriptors, keys, include_body, include_result, include_trail, context, ends_s
            )
        await self._complete(found, include_body, include_result, include_trail, context, ends_s)
        return found

    async def _complete(
        self,
        found: dict[str, JobInfo],
        include_body: bool,
        include_result: bool,
        include_trail: bool,
        context: RequestContext | None,
        ends_s: float,
    ) -> None:
        """What was left out of the answer comes by further calls, where this client is to do that."""
        if not self._whole_lookups or not (include_body or include_result):
            return

        async def lookup_again(names: Sequence[str], with_body: bool, with_result: bool) -> dict[str, JobInfo]:
            return await self._lookup_answers(None, names, (), with_body, with_result, include_trail, context, ends_s)

        await complete(found, include_body, include_result, lookup_again)

    async def _lookup_answers(
        self,
        queue: str | None,
        descriptors: Sequence[str],
        keys: Sequence[KeyRef],
        include_body: bool,
        include_result: bool,
        include_trail: bool,
        context: RequestContext | None,
        ends_s: float,
    ) -> dict[str, JobInfo]:
        """What one answer holds of each job, in as many calls as there have to be for so many."""

        def arguments(names: Sequence[str], some_keys: Sequence[KeyRef]) -> tuple[Any, ...]:
            values = (names, include_body, include_result, 0, queue or "", some_keys, include_trail)
            return (
                values if include_trail else values[:6] if some_keys else values[:5] if include_result else values[:2]
            )

        if len(descriptors) + len(keys) <= LOOKED_UP_AT_ONCE:
            left_s = ends_s - self._now_s()
            values = arguments(descriptors, keys)
            return await self._call(methods.LOOKUP, context, left_s, *values, needs=KEYS if keys else None)
        found: dict[str, JobInfo] = {}
        for start in range(0, len(descriptors), LOOKED_UP_AT_ONCE):
            some = descriptors[start : start + LOOKED_UP_AT_ONCE]
            page = await self._call(methods.LOOKUP, context, ends_s - self._now_s(), *arguments(some, ()))
            found.update(page)
        for start in range(0, len(keys), LOOKED_UP_AT_ONCE):
            values = arguments((), keys[start : start + LOOKED_UP_AT_ONCE])
            page = await self._call(methods.LOOKUP, context, ends_s - self._now_s(), *values, needs=KEYS)
            found.update(page)
        return found

    async def _wait_once(
        self,
        queue: str,
        descriptors: Sequence[str],
        keys: Sequence[KeyRef],
        include_body: bool,
        include_result: bool,
        include_trail: bool,
        wait_ms: int,
        context: RequestContext | None,
        timeout: float | None,
    ) -> dict[str, JobInfo]:
        """A lookup that waits, in one call. Sent again, it waits for what is left of the time."""
        if len(descriptors) + len(keys) > LOOKED_UP_AT_ONCE:
            raise RequestInvalid(f"a lookup that waits may name {LOOKED_UP_AT_ONCE} jobs")
        values = (descriptors, include_body, include_result, wait_ms, queue, keys, include_trail)
        return await self._call_and_wait(
            methods.LOOKUP, context, timeout, wait_ms, *values, needs=KEYS if keys else None
        )

    @overload
    async def wait(  # type: ignore[overload-overlap]  # a text is a sequence of texts too
        self,
        descriptors: str,
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> JobInfo | None: ...

    @overload
    async def wait(
        self,
        descriptors: Sequence[str],
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> dict[str, JobInfo | None]: ...

    @checked
    async def wait(
        self,
        descriptors: str | Sequence[str],
        *,
        timeout: float | None = None,
        include_body: bool = False,
        include_result: bool = True,
    ) -> JobInfo | dict[str, JobInfo | None] | None:
        """Wait until a job has ended, and return it with its result; None where it is not there.

        TimeoutError: it has not ended after `timeout` seconds (None: no limit). Of several jobs, those that have not
        ended after that time are missing in the answer. Callers that wait at the same time share calls. Servers that
        restart are waited for; one of an older version is asked again and again, every two seconds at least.
        RequestInvalid: a text that is no descriptor.
        """
        _, names = named_jobs([[descriptors] if isinstance(descriptors, str) else descriptors])
        self._deadline_s(None)
        waits = self._joined_waits(include_body, include_result)
        until_s = math.inf if timeout is None else self._now_s() + timeout
        futures = {name: waits.wait(name, until_s) for name in dict.fromkeys(names)}
        try:
            if futures:
                await asyncio.wait(futures.values(), timeout=timeout)
            if isinstance(descriptors, str):
                if not futures[descriptors].done():
                    raise TimeoutError(f"{descriptors} has not ended within {timeout} s")
                return futures[descriptors].result()
            return {name: future.result() for name, future in futures.items() if future.done()}
        finally:
            for future in futures.values():
                future.cancel()

    def _joined_waits(self, include_body: bool, include_result: bool) -> JoinedWaits:
        which = (include_body, include_result)
        waits = self._waits.get(which)
        if waits is None:

            async def look(names: Sequence[str], wait_ms: int) -> dict[str, JobInfo]:
                ends_s = self._deadline_s(None) + wait_ms / 1000
                if self._waits_no_more:  # short calls only, from now on
                    found = await self._call(methods.LOOKUP, None, None, names, *which)
                else:
                    found = await self._wait_once("", names, (), *which, False, wait_ms, None, None)
                await self._complete(found, *which, False, None, ends_s)
                return found

            waits = self._waits[which] = JoinedWaits(look)
        return waits

    async def _close_waits(self, error: Exception) -> None:
        for waits in self._waits.values():
            await waits.close(error)

    # -- changing --------------------------------------------------------------------------------------------------

    @overload
    async def cancel(
        self,
        descriptors: Sequence[str],
        /,
        *,
        running: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Cancelled: ...

    @overload
    async def cancel(
        self,
        queue: str,
        descriptors: Sequence[str] = (),
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Cancelled: ...

    @checked
    async def cancel(
        self,
        queue: str | Sequence[str] | None = None,
        descriptors: Sequence[str] | None = None,
        *,
        keys: Sequence[KeyRef] = (),
        running: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Cancelled:
        """Remove jobs that are still pending, and return an outcome for each.

        Descriptors name their queue, and those of several queues take a call for each; with a `queue`, jobs of another
        one are NOT_FOUND. Keys are of jobs of `queue`, each with a dedupe key. `running`: the workers of those in
        progress are asked to stop: REQUESTED. RequestInvalid: a text that is no descriptor.
        """
        named = [each for each in (queue, descriptors) if each is not None]
        queue, descriptors = named_jobs(named, None, None, keys)
        groups = by_queue(descriptors) if queue is None else {queue: descriptors}
        ends_s = self._deadline_s(timeout)
        found = Cancelled({})
        for name, some in groups.items():
            left_s = ends_s - self._now_s()
            outcomes = await self._call(
                methods.CANCEL, context, left_s, name, some, keys, running, needs=KEYS if keys or running else None
            )
            found.update(outcomes)
            found.by_key.extend(outcomes.by_key)
        return found

    @checked
    async def reschedule(
        self,
        queue: str,
        changes: Sequence[RescheduleJob],
        *,
        audited: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[RescheduleOutcome]:
        """Give pending jobs of a queue another time, body or number of attempts; an outcome per change, in order.
        `audited`: an operator does it, and the audit has an entry that names the jobs. MethodUnknown: an older server.
        """
        for change in changes:
            check_time(change.run_after_ms)
        return await self._call(methods.RESCHEDULE, context, timeout, queue, changes, audited)
