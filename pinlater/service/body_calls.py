"""The calls about tiers of bodies: the rights that they need, and the answers of a server without tiers."""

from __future__ import annotations

from pinlater.errors import ContinuationInvalid, RequestInvalid
from pinlater.model import CONTINUATION_START, RequestContext
from pinlater.model.body_words import BodiesAction, BodiesChange, BodiesStep, BodyTiers
from pinlater.service.audit import OPEN
from pinlater.service.rights import named
from pinlater.service.service_context import ServiceContext

MAX_LIMIT = 1_000
_NO_TIERS = "this server has no tiers of bodies: start all servers with --bodies URL"


class BodyCalls:
    """Bodies, for one service."""

    def __init__(self, context: ServiceContext) -> None:
        self._operations = context.features.bodies
        self._audit = context.audit

    async def status(self) -> BodyTiers:
        return BodyTiers() if self._operations is None else await self._operations.status()

    async def change(self, change: BodiesChange, context: RequestContext | None) -> BodiesStep:
        if self._operations is None:
            raise RequestInvalid(_NO_TIERS)
        if not 1 <= change.limit <= MAX_LIMIT:
            raise RequestInvalid.of("limit", change.limit, f"1 to {MAX_LIMIT}")
        if len(change.continuation) > 1_000:
            raise ContinuationInvalid("this is no continuation of a run over bodies")
        if change.store and change.action is not BodiesAction.SWEEP:
            raise RequestInvalid.of("store", change.store, "nothing, but for SWEEP")
        if change.queue and change.action is BodiesAction.SWEEP:
            raise RequestInvalid.of("queueName", change.queue, "nothing for SWEEP, which takes shards")
        step = await self._operations.step(change)
        if (
            change.continuation == CONTINUATION_START
            and not change.dry_run
            and change.action is not BodiesAction.VERIFY
        ):
            who = named(context, "" if context is None else context.source)
            of = [f"{name} {text}" for name, text in (("tier", change.tier), ("store", change.store)) if text]
            action = f"{change.action.name.lower()}_bodies"
            await self._audit.write(who, action, change.queue or "*", ", ".join(of), part=OPEN)
        return step


class BodyApi:
    """The calls of `Api` about bodies, of a service that has BodyCalls."""

    _body_calls: BodyCalls

    async def get_body_tiers(self, *, context: RequestContext | None = None) -> BodyTiers:
        return await self._body_calls.status()

    async def change_bodies(self, change: BodiesChange, *, context: RequestContext | None = None) -> BodiesStep:
        return await self._body_calls.change(change, context)
