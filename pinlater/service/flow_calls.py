"""The calls about flows: the rights that they need, and their answers.

Rights on a flow are those on the queues of all its stages. Where a caller may neither do what it asks for nor read all
of them, the flow is not there for that caller: nothing is said of it, not even the name of a queue.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

from pinlater.backends.base import ClaimRequest, JobKey
from pinlater.errors import (
    ContinuationInvalid,
    FlowNotFound,
    FlowsUnavailable,
    Forbidden,
    PinLaterError,
    RequestInvalid,
)
from pinlater.flows.ends import SeesBodies
from pinlater.flows.flow_engine import Flows
from pinlater.flows.flow_limits import flow_checks, is_flow_name, item_checks
from pinlater.flows.item_jobs import item_key
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    EVERY_QUEUE,
    AccessAction,
    ClaimOutcome,
    DequeuedJob,
    JobInfo,
    JobState,
    KeyRef,
    RequestContext,
    parse_descriptor,
)
from pinlater.model.flow_words import (
    Assignment,
    FlowCreated,
    FlowItemsPage,
    FlowRetry,
    FlowsPage,
    FlowState,
    FlowStatus,
    ItemState,
    NewFlow,
    NewItem,
    RefusedItems,
)
from pinlater.model.group_template import WITHOUT_GROUP, groups_possible
from pinlater.service import validation
from pinlater.service.audit import OPEN
from pinlater.service.rights import READ, may, owner, require_groups
from pinlater.service.service_context import ServiceContext

T = TypeVar("T")

MAX_PAGE = 1_000
NOBODY_MS = 3_600_000
"""An item that nobody takes for so long is said to be left."""

SETTLE_S = 1.2
"""After this time every live process has read that a queue takes items: they read once a second."""

_ENQUEUE, _CONSUME = (AccessAction.ENQUEUE,), (AccessAction.CONSUME,)
_CANCEL, _OPERATE = (AccessAction.ENQUEUE, AccessAction.OPERATE), (AccessAction.OPERATE,)

_OFF = "this server has no flows: start it with --flows URL, or ask one that has"


class FlowCalls:
    """Flows, for one service. Where it has none each call is FlowsUnavailable."""

    def __init__(self, context: ServiceContext, claimed: Callable[[str, Sequence[DequeuedJob]], None]) -> None:
        self._flows = context.features.flows
        self._router = context.router
        self._queues = context.queues
        self._clock = context.clock
        self._validator = context.validator
        self._settings = context.settings
        self._claims = context.claims
        self._limits = context.limits
        self._metrics = context.metrics
        self._audit = context.audit
        self._who = context.who
        self._claimed = claimed

    @property
    def _on(self) -> Flows:
        if self._flows is None:
            raise FlowsUnavailable(_OFF, retryable=False)
        return self._flows

    def start_draining(self) -> None:
        """Calls that wait for flows are answered now."""
        if self._flows is not None:
            self._flows.waits.start_draining()

    # -- making and filling --------------------------------------------------------------------------------------------

    async def create(self, new: NewFlow, context: RequestContext | None) -> FlowCreated:
        flows, now_ms = self._on, self._clock.now_ms()
        await _in_turns(flow_checks(new))
        queues = {stage.queue: None for stage in new.stages}
        queues |= {stage.applet.queue: None for stage in new.stages if stage.applet.queue}
        callback = new.on_complete
        if callback is not None:
            flows.callbacks.check(callback)
        used = [*queues, *([callback.queue] if callback is not None and callback.queue else [])]
        for queue in used:
            validation.new_queue(queue)
            self._require(context, _ENQUEUE, queue)
        for stage in new.stages:
            require_groups(context, _ENQUEUE, stage.queue, groups_possible(stage.group))
            if stage.applet.queue:
                require_groups(context, _ENQUEUE, stage.applet.queue, WITHOUT_GROUP)
        if callback is not None and callback.queue:
            require_groups(context, _ENQUEUE, callback.queue, WITHOUT_GROUP)
        fresh = [queue for queue in queues if queue not in self._queues.flow_queues]
        for queue in [*fresh, *(queue for queue in used if not self._queues.has(queue))]:
            if not may(context, _OPERATE, queue):
                raise Forbidden(
                    f"queue {queue!r} takes no items yet, or is not there: who may operate it makes it ready, as by "
                    f"`pinlater flow create ready --stage ready:{queue} --seal`"
                )
        for stage in new.stages:
            if not 1 <= stage.priority <= self._settings.num_priority_levels:
                raise RequestInvalid.of("priority", stage.priority, f"1 to {self._settings.num_priority_levels}")
        await flows.maker.check(new.stages)
        if any(stage.group for stage in new.stages):
            self._router.keys.check_groups()
        await self._take_items(flows, queues, context)
        if callback is not None and callback.queue and not self._queues.has(callback.queue):
            await self._queues.create(callback.queue, self._who(context), owner(context))
        whose, may_fill = owner(context), _seen_by(context, _ENQUEUE)
        created = await flows.connection.call(
            lambda database: database.create(new, now_ms, whose, may_fill, is_checked=True)
        )
        if created.is_new:
            self._metrics.add(1, "flows_created")
            self._metrics.add(sum(map(len, new.items.values())), "flow_items_added")
            flows.keeper.wake()
            if new.sealed:
                await self._see_end(flows, created.id)
        return created

    async def _take_items(self, flows: Flows, queues: Iterable[str], context: RequestContext | None) -> None:
        """Mark those of these queues that are not, and come back when every live process has read the marks, also
        those that another call made a moment ago: where a process has not, only the store learns of acks of items.
        """
        for queue in queues:
            if queue not in self._queues.flow_queues:
                await self._queues.take_items(queue, self._who(context), owner(context))
        if flows.has_others():
            items_since_ms = max((self._queues.items_since_ms(queue) for queue in queues), default=0)
            left_s = (items_since_ms + self._clock.uncertainty_ms - self._clock.now_ms()) / 1000 + SETTLE_S
            if left_s > 0:
                await asyncio.sleep(min(left_s, SETTLE_S))

    async def add(
        self, flow_id: str, stage: str, items: Sequence[NewItem], seal: bool, context: RequestContext | None
    ) -> list[int]:
        flows, now_ms = self._on, self._clock.now_ms()
        await _in_turns(item_checks(items))
        queues = await self._may(flow_id, _ENQUEUE, context, stage)
        if context is not None and context.caller is not None and context.caller.limits_groups:
            status = await flows.connection.call(lambda database: database.status(flow_id))
            for each in status.stages:
                if each.stage.name == stage:
                    require_groups(context, _ENQUEUE, queues[stage], groups_possible(each.stage.group))
        numbers = await flows.connection.call(lambda database: database.add(flow_id, stage, items, now_ms, seal=seal))
        if items:
            self._metrics.add(len(items), "flow_items_added")
            flows.keeper.wake()
        if seal:  # all of them may be known, and over
            await self._see_end(flows, flow_id)
        return numbers

    async def seal(self, flow_id: str, stage: str, context: RequestContext | None) -> None:
        flows, now_ms = self._on, self._clock.now_ms()
        await self._may(flow_id, _ENQUEUE, context, stage)
        flows.are_over(await flows.connection.call(lambda database: database.seal(flow_id, stage, now_ms)))

    async def _see_end(self, flows: Flows, flow_id: str) -> None:
        """Answer whoever waits for the flow, where sealing a stage has ended it."""
        status = await flows.connection.call(lambda database: database.status(flow_id))
        if status.completed_ms is not None:
            flows.are_over([flow_id])

    # -- looking -------------------------------------------------------------------------------------------------------

    async def status(self, flow_id: str, wait_ms: int, context: RequestContext | None) -> FlowStatus:
        if wait_ms < 0:
            raise RequestInvalid.of("waitMillis", wait_ms, "0 or more")
        flows = self._on
        await self._may(flow_id, READ, context)
        loop = asyncio.get_running_loop()
        ends_s = loop.time() + min(wait_ms, self._settings.max_wait_ms) / 1_000
        sees = _sees_bodies(context)
        status = await flows.connection.call(lambda database: database.status(flow_id, sees))
        if wait_ms and status.completed_ms is None:
            holder = "" if context is None else context.holder
            await flows.waits.until_over(flow_id, ends_s - loop.time(), holder)
            await self._may(flow_id, READ, context)
            status = await flows.connection.call(lambda database: database.status(flow_id, sees))
        unclaimed = await self._unclaimed(flows, status)
        return self._with_problems(replace(status, troubles=[*status.troubles, *unclaimed]) if unclaimed else status)

    def _with_problems(self, status: FlowStatus) -> FlowStatus:
        """The status with problems that the database cannot know: of queues that take no items, or hand none out."""
        problems = []
        for each in status.stages:
            queue = each.stage.queue
            problem = self._on.keeper.problem_of(queue) if each.pending else ""
            if not problem and each.queued:
                rejection = self._limits.rejection_of(queue)
                problem = "" if rejection is None else rejection.message
            if problem:
                problems.append(f"stage {each.stage.name}: {problem}")
        return replace(status, troubles=[*status.troubles, *problems]) if problems else status

    async def _unclaimed(self, flows: Flows, status: FlowStatus) -> list[str]:
        """A text for each stage with items that no worker takes; none for a flow that is over or new (NOBODY_MS)."""
        before_ms = self._clock.now_ms() - NOBODY_MS
        if status.completed_ms is not None or status.created_ms > before_ms:
            return []
        problems = []
        for stage, job in await flows.connection.call(lambda database: database.longest_queued(status.id, before_ms)):
            ref = parse_descriptor(job.job)
            if ref is None or job.queue not in self._queues.flow_queues:
                continue
            info = await self._job_of(job.queue, ref.shard, JobKey(ref.priority, ref.id))
            if _is_left(info, before_ms):
                problems.append(
                    f"stage {stage}: no worker has taken item {job.number} from queue {job.queue!r} for an hour: start "
                    "a worker of this queue"
                )
        return problems

    async def _job_of(self, queue: str, shard_id: str, job: JobKey) -> JobInfo | None:
        """The job, without its body; None where it is not there, and where the shard cannot be asked."""
        (infos,) = await self._router.ask_by_shard(
            [(shard_id, lambda shard: shard.lookup(queue, [job], with_body=False, max_bytes=0))]
        )
        return None if not infos or isinstance(infos, PinLaterError) else infos[0]

    async def page(
        self,
        name: str,
        dedupe_key: str,
        state: FlowState | None,
        continuation: str,
        limit: int,
        context: RequestContext | None,
    ) -> FlowsPage:
        below, sees = _position(continuation), _sees_bodies(context)
        limit = min(self._validator.limit(limit), MAX_PAGE)
        if not self._on.connection.is_made:  # nobody has made a flow, and a look need not make the database
            return FlowsPage([], CONTINUATION_END)
        may_read = _seen_by(context, READ)
        found, next_below = await self._on.connection.call(
            lambda database: database.flows(name, dedupe_key, state, below, limit, may_read, sees)
        )
        return FlowsPage(
            [self._with_problems(each) for each in found], str(next_below) if next_below else CONTINUATION_END
        )

    async def items(
        self,
        flow_id: str,
        stage: str,
        state: ItemState | None,
        dedupe_key: str,
        numbers: Sequence[int],
        include_body: bool,
        continuation: str,
        limit: int,
        context: RequestContext | None,
    ) -> FlowItemsPage:
        after = _position(continuation)
        limit = min(self._validator.limit(limit), MAX_PAGE)
        if len(numbers) > MAX_PAGE:
            raise RequestInvalid.of("the length of numbers", len(numbers), f"at most {MAX_PAGE}")
        await self._may(flow_id, READ, context, shows_bodies=include_body)
        found, next_after = await self._on.connection.call(
            lambda database: database.items(flow_id, stage, state, dedupe_key, numbers, after, limit)
        )
        if not include_body:
            found = [
                replace(
                    each,
                    payload=b"",
                    result=None,
                    failures=[replace(failure, reason="") for failure in each.failures],
                    applet_error="",
                )
                for each in found
            ]
        return FlowItemsPage(found, str(next_after) if next_after else CONTINUATION_END)

    # -- ending --------------------------------------------------------------------------------------------------------

    async def cancel(self, flow_id: str, context: RequestContext | None) -> FlowStatus:
        flows = self._on
        await self._may(flow_id, _CANCEL, context)
        ran = await self._cancel(flows, flow_id)
        sees = _sees_bodies(context)
        status = await flows.connection.call(lambda database: database.status(flow_id, sees))
        if ran:
            await self._note(context, "cancel_flow", status)
        return status

    async def _cancel(self, flows: Flows, flow_id: str) -> bool:
        """Whether it ran."""
        now_ms = self._clock.now_ms()
        ran = await flows.connection.call(lambda database: database.cancel(flow_id, now_ms))
        await flows.keeper.stop(flow_id)
        return ran

    async def _note(self, context: RequestContext | None, action: str, status: FlowStatus, more: str = "") -> None:
        """Write the action to the audit. It has no making, filling and sealing: programs do that, as they enqueue."""
        count = sum(each.items for each in status.stages)
        key = f", dedupe key {status.dedupe_key}" if status.dedupe_key else ""
        detail = f"{status.name}{key}, {count} items{more}"
        await self._audit.write(self._who(context), action, status.id, detail, part=OPEN)

    async def delete(self, flow_id: str, context: RequestContext | None) -> None:
        flows = self._on
        await self._may(flow_id, _OPERATE, context)
        await self._cancel(flows, flow_id)
        status = await flows.connection.call(lambda database: database.status(flow_id))
        with suppress(FlowNotFound):  # another call, or the end of its time to live, removes it too
            while not await flows.connection.call(lambda database: database.delete(flow_id, MAX_PAGE)):
                pass
        await self._note(context, "delete_flow", status)

    async def resume(self, flow_id: str, stage: str, expression: str, context: RequestContext | None) -> FlowStatus:
        flows = self._on
        queues = await self._may(flow_id, _OPERATE, context)
        await self._take_items(flows, sorted(set(queues.values())), context)
        over = await flows.resume(flow_id, stage, expression, owner(context))
        flows.keeper.forget_problems()
        if over:
            flows.are_over([flow_id])
        sees = _sees_bodies(context)
        status = await flows.connection.call(lambda database: database.status(flow_id, sees))
        more = f", stage {stage}" if stage else ""
        await self._note(context, "resume_flow", status, f"{more}, by {expression}" if expression else more)
        return self._with_problems(status)

    async def retry(
        self,
        flow_id: str,
        numbers: Sequence[int],
        stage: str,
        failed: bool,
        and_follows: bool,
        context: RequestContext | None,
    ) -> FlowRetry:
        if bool(numbers) == failed:
            raise RequestInvalid("which items are to be retried? name their numbers, or all that have failed")
        if stage and numbers:
            raise RequestInvalid.of("stage", stage, "none beside numbers, which name their items")
        if len(numbers) > MAX_PAGE:
            raise RequestInvalid.of("the length of numbers", len(numbers), f"at most {MAX_PAGE}")
        flows = self._on
        queues = await self._may(flow_id, _OPERATE, context)
        await self._take_items(flows, sorted(set(queues.values())), context)
        retried = removed = 0
        refused: list[RefusedItems] = []
        async for step in flows.retry(flow_id, tuple(dict.fromkeys(numbers)), stage, and_follows, owner(context)):
            retried, removed = retried + step.retried, removed + step.removed
            refused += step.refused
        sees = _sees_bodies(context)
        status = await flows.connection.call(lambda database: database.status(flow_id, sees))
        if retried:
            followers = f", with {removed} that had followed" if removed else ""
            await self._note(context, "retry_flow_items", status, f", {retried} retried{followers}")
        return FlowRetry(self._with_problems(status), retried, removed, refused)

    # -- assigning -----------------------------------------------------------------------------------------------------

    async def assign(self, number: int, claim_timeout_ms: int | None, context: RequestContext | None) -> Assignment:
        flows = self._on
        may_take = _seen_by(context, _CONSUME)
        item, queue = await flows.connection.call(lambda database: database.item(number, may_take))
        if item.state is not ItemState.PENDING:
            return Assignment(ClaimOutcome.ENDED)
        rejected = self._limits.rejection_of(queue)
        if rejected is not None:
            return Assignment(ClaimOutcome.LIMITED)
        if not item.job:
            if item.retry_at_ms is not None and item.retry_at_ms > self._clock.now_ms():
                return Assignment(ClaimOutcome.NOT_DUE)
            if queue not in self._queues.flow_queues:
                return Assignment(ClaimOutcome.NOT_FOUND)
            why_not = await flows.keeper.bring(number)  # its turn comes now, as it is asked for
            item, queue = await flows.connection.call(lambda database: database.item(number, may_take))
            if item.state is not ItemState.PENDING:
                return Assignment(ClaimOutcome.ENDED)
            if not item.job:
                return Assignment(why_not or ClaimOutcome.NOT_FOUND)
        settings = self._queues.settings(queue)
        timeout_ms = settings.claim_timeout_ms if claim_timeout_ms is None else claim_timeout_ms
        most_ms = self._settings.max_claim_timeout_ms
        if claim_timeout_ms is not None and not 1 <= claim_timeout_ms <= most_ms:  # its holder has to know how long
            raise RequestInvalid.of("claimTimeoutMillis", claim_timeout_ms, f"1 to {most_ms}")
        source = self._validator.source(context)
        request = ClaimRequest(
            self._claims.next_secret(source),
            1,
            self._validator.priorities,
            min(timeout_ms, most_ms),
            self._settings.max_body_bytes,
            0,
            claim_timeout_ms is None,
        )
        outcome, job = await self._claim(queue, item.job, request)
        if outcome is ClaimOutcome.NOT_FOUND:  # jobs of keys move with the homes of these
            (moved,) = await self._router.find_keys(queue, [KeyRef(item_key(number))])
            if moved is not None and moved.descriptor != item.job:
                renewed = replace(request, claim_descriptor=self._claims.next_secret(source))
                outcome, job = await self._claim(queue, moved.descriptor, renewed)
        if job is None:
            return Assignment(outcome)
        self._claimed(queue, [job])
        return Assignment(outcome, job, item.payload)

    async def _claim(
        self, queue: str, descriptor: str, request: ClaimRequest
    ) -> tuple[ClaimOutcome, DequeuedJob | None]:
        ref = parse_descriptor(descriptor)
        if ref is None:
            return ClaimOutcome.NOT_FOUND, None
        return await self._limits.claim_listed(queue, ref.shard, JobKey(ref.priority, ref.id), request)

    # -- rights --------------------------------------------------------------------------------------------------------

    async def _may(
        self,
        flow_id: str,
        actions: tuple[AccessAction, ...],
        context: RequestContext | None,
        stage: str = "",
        *,
        shows_bodies: bool = False,
    ) -> Mapping[str, str]:
        """The queues of a flow's stages. FlowNotFound; Forbidden, to callers that may read the flow."""
        queues = await self._on.connection.call(lambda database: database.queues(flow_id))
        is_named = is_flow_name(stage) and stage in queues  # a hidden stage has no such name
        checked = [queues[stage]] if is_named else sorted(set(queues.values()))
        if all(may(context, actions, queue, shows_bodies) for queue in checked):
            return queues
        if not all(may(context, READ, queue) for queue in queues.values()):
            raise FlowNotFound.named(flow_id)
        for queue in checked:
            self._require(context, actions, queue, shows_bodies)
        return queues

    def _require(
        self,
        context: RequestContext | None,
        actions: tuple[AccessAction, ...],
        queue: str,
        shows_bodies: bool = False,
    ) -> None:
        if not may(context, actions, queue, shows_bodies):
            assert context is not None
            assert context.caller is not None
            what = ", which shows payloads and results" if may(context, actions, queue) else ""
            raise Forbidden(f"{context.caller.identity} may not {' or '.join(actions)} on queue {queue!r}{what}")


async def _in_turns(checks: Iterable[None]) -> None:
    """Others have their turn between two steps."""
    for _ in checks:
        await asyncio.sleep(0)


def _is_left(info: JobInfo | None, before_ms: int) -> bool:
    """A job that could be taken since before that time."""
    if info is None or info.state is not JobState.PENDING or info.waits_for is not None:
        return False
    return info.run_after_ms <= before_ms


def _position(continuation: str) -> int:
    """The number of an item or flow, which programs that follow a flow go on behind. ContinuationInvalid."""
    if continuation == CONTINUATION_START:
        return 0
    if not continuation.isdecimal() or len(continuation) > 18:
        raise ContinuationInvalid(
            f"continuation {continuation[:100]!r} was not given for this list; begin with {CONTINUATION_START!r}"
        )
    return int(continuation)


def _seen_by(
    context: RequestContext | None, actions: tuple[AccessAction, ...]
) -> Callable[[Collection[str]], bool] | None:
    """Whether the caller may do that on all of some queues; None: it may everywhere."""
    if may(context, actions, EVERY_QUEUE):
        return None
    return lambda queues: all(may(context, actions, queue) for queue in queues)


def _sees_bodies(context: RequestContext | None) -> SeesBodies:
    return lambda queues: all(may(context, READ, queue, shows_bodies=True) for queue in queues)


class FlowApi:
    """The calls of `Api` about flows, of a service that has FlowCalls."""

    _flow_calls: FlowCalls

    async def create_flow(self, flow: NewFlow, *, context: RequestContext | None = None) -> FlowCreated:
        return await self._flow_calls.create(flow, context)

    async def add_flow_items(
        self,
        flow_id: str,
        stage: str,
        items: Sequence[NewItem],
        *,
        seal: bool = False,
        context: RequestContext | None = None,
    ) -> list[int]:
        return await self._flow_calls.add(flow_id, stage, items, seal, context)

    async def seal_stage(self, flow_id: str, stage: str = "", *, context: RequestContext | None = None) -> None:
        await self._flow_calls.seal(flow_id, stage, context)

    async def get_flow(self, flow_id: str, *, wait_ms: int = 0, context: RequestContext | None = None) -> FlowStatus:
        return await self._flow_calls.status(flow_id, wait_ms, context)

    async def get_flows(
        self,
        *,
        name: str = "",
        dedupe_key: str = "",
        state: FlowState | None = None,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> FlowsPage:
        return await self._flow_calls.page(name, dedupe_key, state, continuation, limit, context)

    async def get_flow_items(
        self,
        flow_id: str,
        *,
        stage: str = "",
        state: ItemState | None = None,
        dedupe_key: str = "",
        numbers: Sequence[int] = (),
        include_body: bool = True,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> FlowItemsPage:
        return await self._flow_calls.items(
            flow_id, stage, state, dedupe_key, numbers, include_body, continuation, limit, context
        )

    async def cancel_flow(self, flow_id: str, *, context: RequestContext | None = None) -> FlowStatus:
        return await self._flow_calls.cancel(flow_id, context)

    async def delete_flow(self, flow_id: str, *, context: RequestContext | None = None) -> None:
        await self._flow_calls.delete(flow_id, context)

    async def resume_flow(
        self, flow_id: str, *, stage: str = "", expression: str = "", context: RequestContext | None = None
    ) -> FlowStatus:
        return await self._flow_calls.resume(flow_id, stage, expression, context)

    async def retry_flow_items(
        self,
        flow_id: str,
        numbers: Sequence[int] = (),
        *,
        stage: str = "",
        failed: bool = False,
        and_follows: bool = False,
        context: RequestContext | None = None,
    ) -> FlowRetry:
        return await self._flow_calls.retry(flow_id, numbers, stage, failed, and_follows, context)

    async def assign_item(
        self, number: int, *, claim_timeout_ms: int | None = None, context: RequestContext | None = None
    ) -> Assignment:
        return await self._flow_calls.assign(number, claim_timeout_ms, context)
