"""The groups of a queue as operators see and change them. Each change is recorded with its author."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from pinlater.backends.base import Shard
from pinlater.backends.group_store import ClearedGroups, GroupCounts
from pinlater.errors import GroupsNotSupported, PinLaterError, QueueNotFound, RequestInvalid
from pinlater.extended_limits import read_group
from pinlater.model import (
    CONTINUATION_END,
    CONTINUATION_START,
    Changed,
    GroupsCleared,
    GroupsPage,
    GroupView,
    RequestContext,
)
from pinlater.queues.group_rules_book import LIMITS
from pinlater.service import validation
from pinlater.service.admin_password import Operator
from pinlater.service.audit import PROTECTED
from pinlater.service.continuations import continuation_behind, place_behind
from pinlater.service.queue_admin import MAX_CHANGES, missed_text
from pinlater.service.service_context import ServiceContext
from pinlater.shards.handle import ShardHandle, answers, ask_all

MAX_PAGE = 1_000


class GroupAdmin:
    """Groups, for one service."""

    def __init__(self, context: ServiceContext) -> None:
        self._book = context.queues.group_rules
        self._router = context.router
        self._queues = context.queues
        self._clock = context.clock
        self._validator = context.validator
        self._limits = context.limits.groups
        self._hand_outs = context.limits.hand_outs
        self._admin = context.admin
        self._audit = context.audit

    async def update(
        self,
        queue: str,
        group: str,
        password: str,
        set: Mapping[str, str],
        unset: Sequence[str],
        operator: Operator,
    ) -> Changed:
        await self._admin.check(password, operator)
        validation.existing_queue(queue)
        read_group(group)
        if len(set) + len(unset) > MAX_CHANGES:
            raise RequestInvalid.of("the number of settings", len(set) + len(unset), f"at most {MAX_CHANGES}")
        self._router.keys.homes.check_groups()
        if set.keys() & LIMITS:
            self._router.keys.homes.check_group_limits()
        members = self._router.members.all
        if not any(member.shard.has_groups for member in members):
            raise GroupsNotSupported.of_shard(members[0].shard.shard_id)
        made = await self._queues.change_group(queue, group, set, unset, operator.who)
        if made.is_new:
            changes = [f"{key}={text}" for key, text in set.items()] + [f"{key} unset" for key in unset]
            detail = f"{group}: {', '.join(changes)}{missed_text(made, '; ')}"
            await self._audit.write(operator.who, "update_group", queue, detail, part=PROTECTED)
        return Changed(made.version, made.missed_shards)

    async def page(self, queue: str, names: Sequence[str], continuation: str, limit: int) -> GroupsPage:
        """See Api.get_groups."""
        validation.at_least_1("limit", limit)
        await self._queues.refresh()
        if not self._queues.has(queue):
            raise QueueNotFound.of(queue[:100])
        priorities, now_ms = self._validator.priorities, self._clock.now_ms()
        if names:
            self._validator.amount("groups", names)
            counts, missing = await self._counts(
                lambda shard: shard.count_groups(queue, priorities, names, limited_at_ms=now_ms)
            )
            views = [self._view(queue, name, counts.get(name)) for name in names]
            return await self._completed(queue, GroupsPage(views, CONTINUATION_END, missing))
        limit = min(limit, MAX_PAGE)
        after = place_behind(continuation, (queue,))
        first = "" if continuation == CONTINUATION_START else f"{after}\0"
        counts, missing = await self._counts(
            lambda shard: shard.list_groups(queue, priorities, first, limit + 1, limited_at_ms=now_ms)
        )
        counts = {name: counts[name] for name in sorted(counts, key=str.encode)[: limit + 1]}
        ruled = [name for name in self._book.rules(queue) if name.encode() >= first.encode()]
        found = sorted({*counts, *ruled}, key=str.encode)
        views = [self._view(queue, name, counts.get(name)) for name in found[:limit]]
        is_last = len(found) <= limit
        behind = CONTINUATION_END if is_last else continuation_behind(found[limit - 1], (queue,))
        return await self._completed(queue, GroupsPage(views, behind, missing))

    async def _completed(self, queue: str, page: GroupsPage) -> GroupsPage:
        """With what no store counts by group."""
        names = [view.name for view in page.groups if "*" not in view.name]
        running, of_all = await asyncio.gather(self._limits.running(queue, names), self._hand_outs.of_all(queue))
        for view in page.groups:
            if of_all is not None and "*" not in view.name:
                view.last_minute_share = of_all.groups.get(view.name, 0) / of_all.jobs
            view.running = running.get(view.name)
            if "*" not in view.name and self._limits.holds(queue, view.name, view.running):
                view.limited = view.ready  # also those of priorities at which no claim has found that yet
        return page

    async def clear(
        self, queue: str, password: str, continuation: str, limit: int, dry_run: bool, operator: Operator
    ) -> GroupsCleared:
        """See Api.clear_groups. The shards come one behind the other, by id."""
        await self._admin.check(password, operator)
        await self._queues.refresh()
        if not self._queues.has(queue):
            raise QueueNotFound.of(queue[:100])
        validation.at_least_1("limit", limit)
        meant = (queue, "clear", dry_run)
        begun_id, _, position = place_behind(continuation, meant).partition(" ")
        if not (begun_id or dry_run):
            await self._queues.clear_group_rules(queue, operator.who)
            await self._audit.write(operator.who, "clear_groups", queue, "", part=PROTECTED)
        members = sorted(
            (each for each in self._router.members.all if each.shard.has_groups), key=lambda each: each.shard.shard_id
        )
        left = [each for each in members if each.shard.shard_id >= begun_id]
        cleared, healthy = GroupsCleared(0), self._router.members.healthy()
        while left:
            member = left.pop(0)
            shard_id = member.shard.shard_id
            begin, count = position if shard_id == begun_id else "", min(limit, MAX_PAGE)
            step = await self._clear_step(member, queue, begin, count, dry_run) if member in healthy else None
            if step is None:
                cleared.missing_shards.append(shard_id)
                continue
            cleared.jobs = step.jobs
            if step.position or left:
                place = f"{shard_id} {step.position}" if step.position else f"{left[0].shard.shard_id} "
                cleared.continuation = continuation_behind(place, meant)
            break
        return cleared

    @staticmethod
    async def _clear_step(
        member: ShardHandle, queue: str, position: str, limit: int, dry_run: bool
    ) -> ClearedGroups | None:
        """None: the shard is out."""
        (outcome,) = await ask_all([member], lambda shard: shard.clear_groups(queue, position, limit, dry_run))
        if isinstance(outcome, QueueNotFound):  # it has just been made, or deleted
            return ClearedGroups(0, "")
        return None if isinstance(outcome, PinLaterError) else outcome

    def _view(self, queue: str, name: str, counts: GroupCounts | None) -> GroupView:
        settings = self._book.settings(queue, name, self._queues.limit_of_groups(queue))
        if counts is None:
            return GroupView(name, settings, limited=0)
        return GroupView(name, settings, counts.ready, counts.oldest_run_after_ms, limited=counts.limited)

    async def _counts(
        self, ask: Callable[[Shard], Coroutine[Any, Any, dict[str, GroupCounts]]]
    ) -> tuple[dict[str, GroupCounts], list[str]]:
        """The groups over all shards, and the shards that did not answer."""
        members = self._router.members.healthy()
        outcomes = await ask_all(members, ask)
        missing = [
            member.shard.shard_id
            for member, outcome in zip(members, outcomes, strict=True)
            if isinstance(outcome, PinLaterError) and not isinstance(outcome, QueueNotFound)
        ]
        missing += [member.shard.shard_id for member in self._router.members.all if member not in members]
        found: dict[str, GroupCounts] = {}
        for counts in answers(outcomes):
            for name, own in counts.items():
                found[name] = found[name].plus(own) if name in found else own
        return found, sorted(missing)


class GroupsApi:
    """The calls of `Api` about groups, of a service that has GroupAdmin."""

    _group_admin: GroupAdmin
    _operator: Callable[[RequestContext | None], Operator]

    async def get_groups(
        self,
        queue: str,
        groups: Sequence[str] = (),
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
    ) -> GroupsPage:
        return await self._group_admin.page(queue, groups, continuation, limit)

    async def update_group(
        self,
        queue: str,
        group: str,
        password: str,
        *,
        set: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        context: RequestContext | None = None,
    ) -> Changed:
        return await self._group_admin.update(queue, group, password, set or {}, unset, self._operator(context))

    async def clear_groups(
        self,
        queue: str,
        password: str,
        *,
        continuation: str = CONTINUATION_START,
        limit: int = 500,
        dry_run: bool = False,
        context: RequestContext | None = None,
    ) -> GroupsCleared:
        operator = self._operator(context)
        return await self._group_admin.clear(queue, password, continuation, limit, dry_run, operator)
