"""A flow that runs: items are added to it, it is sealed, waited for, cancelled, and asked for its results.

The calls of a FlowRun are for threads, those of an AsyncFlowRun are awaited. Both can be made for any flow by its id,
as in a completion callback: `FlowRun(app, flow.id).results()`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

import msgspec

from pinlater.clock import Clock
from pinlater.errors import PinLaterError, StageSealed
from pinlater.model.flow_words import FlowRetry, FlowState, FlowStatus, NewItem
from pinlater.schedule import Delay, delay_seconds
from pinlater_workers.app.app import App
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.flows.item_calls import EndedItem, EndedItems, in_calls
from pinlater_workers.jobs.context import refuse_on_loop
from pinlater_workers.jobs.handle import Patience

if TYPE_CHECKING:
    from pinlater.client.async_client import AsyncClient
    from pinlater.client.client import Client
    from pinlater_workers.flows.flow import FlowStage

ResultT = TypeVar("ResultT")

SOONEST_MS, LATEST_MS = 50, 1_000
"""Between looks for more items that have ended: after one that found some, and after many that found none."""

PATIENCE_S = 300.0
"""So long servers may be away while a flow is waited for."""

_LEAST_S, _MOST_S = 1.0, 10.0


class EndedStage(msgspec.Struct, frozen=True, rename="camel"):
    """A stage of a flow that is over, in numbers. `applet_errors`: items whose children could not be made, and were
    given up with the flow.
    """

    name: str
    items: int
    succeeded: int
    failed: int
    applet_errors: int = 0


class FlowEnd(msgspec.Struct, frozen=True, rename="camel"):
    """The end of a flow, which a completion callback gets as the argument `flow`. `state`: COMPLETE or CANCELLED.
    Times: milliseconds since 1970. `end`: how many ends it has had, this one included; a retry opens a flow again.
    """

    id: str
    name: str
    state: str
    dedupe_key: str
    metadata: dict[str, str]
    created_ms: int
    completed_ms: int | None
    stages: list[EndedStage]
    end: int = 1

    @property
    def is_cancelled(self) -> bool:
        return self.state == FlowState.CANCELLED.name


class _FlowHandle:
    """`root`: the stage that `add` means where none is named. `is_new`: this start has made the flow."""

    def __init__(self, app: App, flow_id: str, root: FlowStage[Any] | None = None, *, is_new: bool = False) -> None:
        self._app = app
        self._root = root
        self.id = flow_id
        self.is_new = is_new

    def __repr__(self) -> str:
        return f"<flow {self.id}>"

    def _stage(self, stage: FlowStage[Any] | None) -> FlowStage[Any]:
        _refuse_no_stage(stage)
        found = stage or self._root
        if found is None:
            raise ConfigurationError(
                f"which stage of flow {self.id} is meant? Name it, as in run.add(items, calculate)"
            )
        return found

    def _ended_items(self, status: FlowStatus, stage: FlowStage[Any] | None) -> EndedItems:
        """Of that stage, else of the final ones. Of a job that the app does not know results are plain values."""
        _refuse_no_stage(stage)
        jobs = {each.stage.name: each.stage.job for each in status.stages}
        final = [each.stage.name for each in status.stages if each.stage.is_final]
        if stage is None and not final:
            raise ConfigurationError(f"flow {self.id} has no final stage: declare one with final=True, or name a stage")

        def read(name: str, result: bytes) -> Any:
            job_type = self._app.find(jobs[name])
            return msgspec.json.decode(result) if job_type is None else job_type.read_item_result(result)

        return EndedItems([stage.name] if stage else final, read)

    def _late(self, status: FlowStatus, timeout: Delay | None) -> TimeoutError:
        why = [f"flow {self.id} is not over within {timeout}"]
        for each in status.stages:
            stage = each.stage
            if not each.is_sealed and (stage.keeps_open or not stage.parent):
                why.append(f"stage {stage.name} is open until it is sealed, as by run.seal()")
            if each.pending:
                why.append(f"{each.pending} items of stage {stage.name} are pending, on queue {stage.queue}")
        return TimeoutError("; ".join([*why, *status.troubles, f"`pinlater flow status {self.id}` shows more"]))


def _refuse_no_stage(stage: FlowStage[Any] | None) -> None:
    if stage is not None and not hasattr(stage, "declared"):
        raise ConfigurationError(f"{stage!r:.200} is no stage; allowed: what flow.stage(...) or then(...) has returned")


class _Pace:
    """How long a look for ended items waits: longer and longer while nothing comes."""

    def __init__(self) -> None:
        self.wait_ms = 0

    def after(self, found: int) -> None:
        self.wait_ms = SOONEST_MS if found else min(LATEST_MS, max(SOONEST_MS, self.wait_ms * 2))


def _call_s(timeout: Delay | None) -> float | None:
    """How long the first call may take, which says whether there is a server at all; None: as all calls."""
    return None if timeout is None else min(max(delay_seconds(timeout), _LEAST_S), _MOST_S)


class _Outage:
    """Servers that are away meanwhile."""

    def __init__(self, clock: Clock, timeout: Delay | None) -> None:
        self._clock = clock
        self._patience_ms = round(1_000 * (PATIENCE_S if timeout is None else delay_seconds(timeout)))
        self._answered_ms = clock.now_ms()
        self._pace = _Pace()

    def is_over(self) -> None:
        self._answered_ms = self._clock.now_ms()

    def pause_s(self, error: PinLaterError) -> float:
        """Before the next look. The error itself: it will not pass, or they are away for too long."""
        if not error.retryable or self._clock.now_ms() - self._answered_ms >= self._patience_ms:
            raise error
        self._pace.after(0)
        return self._pace.wait_ms / 1_000


class FlowRun(_FlowHandle):
    """A flow that runs, for threads. Further errors are those of Client; FlowNotFound: it was deleted."""

    def add(self, items: Iterable[Any], stage: FlowStage[Any] | None = None) -> list[int]:
        """Add items to the first stage, or to another one, in calls of up to 1,000, and return their numbers.

        Each call adds all of its items or none. ArgumentsInvalid: the job does not take one of them, and none was
        added. StageSealed.
        """
        refuse_on_loop("start_async(...)'s run, and its add")
        into = self._stage(stage)
        calls = in_calls(list(into.items(items)))
        return [number for some in calls for number in self._client.add_flow_items(self.id, into.name, some)]

    def seal(self, stage: FlowStage[Any] | None = None) -> None:
        """Seal the first stages, or this one: no more items come."""
        _refuse_no_stage(stage)
        self._client.seal_stage(self.id, stage.name if stage else "")

    def send(self, calls: Sequence[Sequence[NewItem]]) -> None:
        """Add the rest of the items of a start; nothing if another start has sealed the stage."""
        for some in calls:
            try:
                self._client.add_flow_items(self.id, self._stage(None).name, some)
            except StageSealed:
                return

    def status(self) -> FlowStatus:
        return self._client.get_flow(self.id)

    def cancel(self) -> FlowStatus:
        """Cancel the flow: what waits fails, and what runs is requested to stop."""
        return self._client.cancel_flow(self.id)

    def retry(self, numbers: Iterable[int] = (), *, and_follows: bool = False) -> FlowRetry:
        """Try items again that have ended, those of these numbers, else all that have failed; a flow that is over
        opens again. What was refused is in the answer, with the reason. `and_follows`: what had followed from them is
        removed first, and stages go on that were stopped.
        """
        named = list(numbers)
        return self._client.retry_flow_items(self.id, named, failed=not named, and_follows=and_follows)

    def wait(self, timeout: Delay | None = None) -> FlowStatus:
        """Wait until the flow is over. TimeoutError: it is not, within `timeout`.

        Servers that are away meanwhile are waited for, without `timeout` for five minutes.
        """
        refuse_on_loop("start_async(...)'s run, and its wait")
        patience, outage = Patience(timeout, self._app.clock), _Outage(self._app.clock, timeout)
        status = self._client.get_flow(self.id, timeout=_call_s(timeout))
        for wait_ms in patience.waits_ms():
            try:
                status = self._client.get_flow(self.id, wait_ms=wait_ms)
            except PinLaterError as error:
                time.sleep(outage.pause_s(error))
                continue
            outage.is_over()
            if status.completed_ms is not None:
                return status
            time.sleep(patience.pause_s())
        raise self._late(status, timeout)

    @overload
    def results(self, stage: FlowStage[ResultT], *, timeout: Delay | None = None) -> Iterator[EndedItem[ResultT]]: ...

    @overload
    def results(self, stage: None = None, *, timeout: Delay | None = None) -> Iterator[EndedItem[Any]]: ...

    def results(self, stage: FlowStage[Any] | None = None, *, timeout: Delay | None = None) -> Iterator[EndedItem[Any]]:
        """Iterate over the items of the final stages, or of this one, as they end, each once, until the flow is over.

        TimeoutError: it is not, within `timeout`. ConfigurationError: it has no final stage. Servers that are away
        meanwhile are waited for, as by `wait`.
        """
        refuse_on_loop("start_async(...)'s run, and its results")
        status = self._client.get_flow(self.id, timeout=_call_s(timeout))
        ended = self._ended_items(status, stage)
        patience, pace, outage = Patience(timeout, self._app.clock), _Pace(), _Outage(self._app.clock, timeout)
        for wait_ms in patience.waits_ms():
            found = 0
            try:
                status = self._client.get_flow(self.id, wait_ms=min(wait_ms, pace.wait_ms))
                for request in ended.requests(status):
                    for item in ended.take(self._client.get_flow_items(self.id, **request)):
                        found += 1
                        yield item
            except PinLaterError as error:
                time.sleep(outage.pause_s(error))
                continue
            outage.is_over()
            if status.completed_ms is not None:
                return
            pace.after(found)
        raise self._late(status, timeout)

    @property
    def _client(self) -> Client:
        return self._app.client


class AsyncFlowRun(_FlowHandle):
    """A flow that runs, for the event loop. It has the calls of FlowRun, awaited; `results` is for `async for`."""

    async def add(self, items: Iterable[Any], stage: FlowStage[Any] | None = None) -> list[int]:
        into = self._stage(stage)
        numbers: list[int] = []
        for some in in_calls(list(into.items(items))):
            numbers += await self._client.add_flow_items(self.id, into.name, some)
        return numbers

    async def seal(self, stage: FlowStage[Any] | None = None) -> None:
        _refuse_no_stage(stage)
        await self._client.seal_stage(self.id, stage.name if stage else "")

    async def send(self, calls: Sequence[Sequence[NewItem]]) -> None:
        for some in calls:
            try:
                await self._client.add_flow_items(self.id, self._stage(None).name, some)
            except StageSealed:
                return

    async def status(self) -> FlowStatus:
        return await self._client.get_flow(self.id)

    async def cancel(self) -> FlowStatus:
        return await self._client.cancel_flow(self.id)

    async def retry(self, numbers: Iterable[int] = (), *, and_follows: bool = False) -> FlowRetry:
        named = list(numbers)
        return await self._client.retry_flow_items(self.id, named, failed=not named, and_follows=and_follows)

    async def wait(self, timeout: Delay | None = None) -> FlowStatus:
        patience, outage = Patience(timeout, self._app.clock), _Outage(self._app.clock, timeout)
        status = await self._client.get_flow(self.id, timeout=_call_s(timeout))
        for wait_ms in patience.waits_ms():
            try:
                status = await self._client.get_flow(self.id, wait_ms=wait_ms)
            except PinLaterError as error:
                await asyncio.sleep(outage.pause_s(error))
                continue
            outage.is_over()
            if status.completed_ms is not None:
                return status
            await asyncio.sleep(patience.pause_s())
        raise self._late(status, timeout)

    @overload
    def results(
        self, stage: FlowStage[ResultT], *, timeout: Delay | None = None
    ) -> AsyncIterator[EndedItem[ResultT]]: ...

    @overload
    def results(self, stage: None = None, *, timeout: Delay | None = None) -> AsyncIterator[EndedItem[Any]]: ...

    async def results(
        self, stage: FlowStage[Any] | None = None, *, timeout: Delay | None = None
    ) -> AsyncIterator[EndedItem[Any]]:
        status = await self._client.get_flow(self.id, timeout=_call_s(timeout))
        ended = self._ended_items(status, stage)
        patience, pace, outage = Patience(timeout, self._app.clock), _Pace(), _Outage(self._app.clock, timeout)
        for wait_ms in patience.waits_ms():
            found = 0
            try:
                status = await self._client.get_flow(self.id, wait_ms=min(wait_ms, pace.wait_ms))
                for request in ended.requests(status):
                    for item in ended.take(await self._client.get_flow_items(self.id, **request)):
                        found += 1
                        yield item
            except PinLaterError as error:
                await asyncio.sleep(outage.pause_s(error))
                continue
            outage.is_over()
            if status.completed_ms is not None:
                return
            pace.after(found)
        raise self._late(status, timeout)

    @property
    def _client(self) -> AsyncClient:
        return self._app.async_client()
