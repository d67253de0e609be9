"""Administration of queues and shards: create, delete, set, show. Each change is recorded with its author."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pinlater.errors import RequestInvalid
from pinlater.model import Changed, ClusterStatus, QueueView, WorkersPage
from pinlater.queues.layers import DEFAULTS
from pinlater.service import validation
from pinlater.service.admin_password import Operator
from pinlater.service.audit import OPEN, PROTECTED
from pinlater.service.service_context import ServiceContext
from pinlater.shards.handle import missing

MAX_CHANGES = 100
"""Settings in one command; there are fewer."""

_BREAKER, _FLOWS_BY_GROUP = "pause_on_failures", "flows_by_group"
_GROUP_LIMITS = ("group_concurrency", "group_rate", "group_max_pending")


class QueueAdmin:
    """Changes of queues and shards, for one service."""

    def __init__(self, context: ServiceContext) -> None:
        self._members, self._keys = context.router.members, context.router.keys
        self._queues = context.queues
        self._breakers = context.breakers
        self._clock = context.clock
        self._admin = context.admin
        self._audit = context.audit

    async def names(self) -> set[str]:
        """The queues, those that another server made a moment ago among them."""
        self._members.require_any()
        if not await self._queues.refresh():
            raise missing(self._members.all)
        return self._queues.names()

    async def create(self, name: str, who: str, owner: str = "") -> None:
        validation.new_queue(name)
        made = await self._queues.create(name, who, owner)
        if made.is_new:
            await self._audit.write(who, "create_queue", name, missed_text(made), part=OPEN)

    async def delete(self, name: str, password: str, operator: Operator) -> None:
        await self._admin.check(password, operator)
        if validation.is_queue_name(name):
            made = await self._queues.delete(name, operator.who)
            if made.is_new:
                await self._audit.write(operator.who, "delete_queue", name, missed_text(made), part=PROTECTED)

    async def update(
        self,
        name: str,
        password: str,
        set: Mapping[str, str],
        unset: Sequence[str],
        create: bool,
        operator: Operator,
    ) -> Changed:
        await self._admin.check(password, operator)
        if name != DEFAULTS:
            (validation.new_queue if create else validation.existing_queue)(name)
        if len(set) + len(unset) > MAX_CHANGES:
            raise RequestInvalid.of("the number of settings", len(set) + len(unset), f"at most {MAX_CHANGES}")
        if set.get(_BREAKER, "none") != "none":
            self._breakers.check()
        if set.get(_FLOWS_BY_GROUP, "false") != "false":
            self._keys.check_groups()
        if any(set.get(each, "none") != "none" for each in _GROUP_LIMITS):
            self._keys.check_groups()
            self._keys.homes.check_group_limits()
        made = await self._queues.change(name, set, unset, create, operator.who, operator.owner)
        resumes = name != DEFAULTS and ("paused" in unset or set.get("paused") == "false")
        if (resumes and await self._breakers.reset(name, operator.who)) or made.is_new:
            changes = [f"{key}={text}" for key, text in set.items()] + [f"{key} unset" for key in unset]
            detail = ", ".join(changes) + missed_text(made, "; ")
            await self._audit.write(operator.who, "update_queue", name, detail, part=PROTECTED)
        return Changed(made.version, made.missed_shards)

    async def update_shard(
        self, shard_id: str, password: str, dequeue_only: bool, give_up: bool, operator: Operator
    ) -> Changed:
        await self._admin.check(password, operator)
        made = await self._queues.override_shard(shard_id, dequeue_only, operator.who, give_up=give_up)
        if made.is_new:
            mode = "given up" if give_up else "dequeue_only" if dequeue_only else "takes new jobs"
            detail = mode + missed_text(made, "; ")
            await self._audit.write(operator.who, "update_shard", shard_id, detail, part=PROTECTED)
        return Changed(made.version, made.missed_shards)

    async def views(self, names: Sequence[str]) -> list[QueueView]:
        """The queues named, or all. QueueNotFound."""
        await self._queues.refresh()
        return [self._queues.view(name) for name in names or sorted(self._queues.names())]

    def plain_status(self) -> ClusterStatus:
        """The status as far as it is known without other servers: that of the shards."""
        return ClusterStatus(self._clock.now_ms(), [], [member.view() for member in self._members.all], [])

    def no_workers(self) -> WorkersPage:
        """The list of workers, where none is kept."""
        return WorkersPage(self._clock.now_ms(), [], 0, 0, 0, 0)


def missed_text(made: Changed, before: str = "") -> str:
    """The shards that missed a change, for the audit; "" for none."""
    return f"{before}missed by shard {', '.join(made.missed_shards)}" if made.missed_shards else ""
