"""The usage of identities: what each has stored beside what it may have, for itself and for operators."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from heapq import nlargest
from typing import TYPE_CHECKING

from pinlater.access.gate import access_view
from pinlater.errors import PinLaterError
from pinlater.model import AccessView, RequestContext
from pinlater.model.owner_bounds import IdentityUsage, OwnedCount, OwnedKind
from pinlater.service.rights import owner
from pinlater.service.service_context import ServiceContext

if TYPE_CHECKING:
    from pinlater.flows.database import FlowDatabase
    from pinlater.flows.owned_flows import OwnerCounts

MAX_SHOWN = 1_000
FLOWS_WITHIN_S = 1.0
"""What the database of flows does not say in this time is not known: who asks for its rights waits no longer."""

ASK_AGAIN_S = 5.0
"""After that it is not asked for so long, since each new token over HTTP asks for its rights, and is not to wait."""

_OF_FLOWS = (OwnedKind.FLOWS, OwnedKind.FLOW_ITEMS)
_UNKNOWN: Mapping[OwnedKind, int | None] = dict.fromkeys(_OF_FLOWS)


class StoredUsage:
    """What identities have stored. A process knows all entries; the database of flows is asked for what is in it."""

    def __init__(self, context: ServiceContext) -> None:
        self._flows = context.features.flows
        self._entries = context.queues.owned
        self._ask_at_s = 0.0

    async def of(self, identity: str) -> list[OwnedCount]:
        """What this identity has of each kind; nothing for ""."""
        if not identity:
            return []
        of_flows = await self._of_flows(lambda database: [database.counts_of(identity)])
        entries: dict[OwnedKind, int | None] = {kind: self._entries.count(kind, identity) for kind in OwnedKind}
        return self._counts(identity, {**entries, **(_UNKNOWN if of_flows is None else of_flows.get(identity, {}))})

    async def all(self) -> list[IdentityUsage]:
        """The usage of up to MAX_SHOWN identities that have most, the nearest to a bound first."""
        of_flows = await self._of_flows(lambda database: database.counted_owners(MAX_SHOWN))
        unknown = {} if of_flows is not None and len(of_flows) < MAX_SHOWN else _UNKNOWN  # others may have some, too
        counts: dict[str, dict[OwnedKind, int | None]] = defaultdict(dict, of_flows or {})
        for kind, identity, count in self._entries.owners():
            counts[identity][kind] = count
        most = nlargest(MAX_SHOWN, counts.items(), key=lambda each: sum(filter(None, each[1].values())))
        usage = [
            IdentityUsage(identity, self._counts(identity, {**dict.fromkeys(OwnedKind, 0), **unknown, **own}))
            for identity, own in most
        ]
        return sorted(usage, key=lambda each: (-each.share, each.identity))

    def _counts(self, identity: str, used: Mapping[OwnedKind, int | None]) -> list[OwnedCount]:
        bounds = self._entries.bounds(identity)
        return [OwnedCount(kind, used[kind], bounds.of(kind)) for kind in OwnedKind]

    async def _of_flows(
        self, count: Callable[[FlowDatabase], Sequence[OwnerCounts]]
    ) -> dict[str, dict[OwnedKind, int | None]] | None:
        """The counts of flows and items, by owner; None: they are not known now."""
        if self._flows is None or not self._flows.connection.is_made:
            return {}
        loop = asyncio.get_running_loop()
        if loop.time() < self._ask_at_s:
            return None
        try:
            found = await asyncio.wait_for(self._flows.connection.call(count), FLOWS_WITHIN_S)
        except (PinLaterError, TimeoutError):
            self._ask_at_s = loop.time() + ASK_AGAIN_S
            return None
        return {each.owner: {OwnedKind.FLOWS: each.flows, OwnedKind.FLOW_ITEMS: each.items} for each in found}


class UsageApi:
    """The calls of `Api` about who a caller is and what it has, of a service that has StoredUsage."""

    _usage: StoredUsage

    async def get_access(self, *, context: RequestContext | None = None) -> AccessView:
        view = access_view(None if context is None else context.caller)
        view.stored = await self._usage.of(owner(context))
        return view

    async def get_usage(self, *, context: RequestContext | None = None) -> list[IdentityUsage]:
        return await self._usage.all()
