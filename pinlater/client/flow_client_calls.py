"""The calls of AsyncClient about flows."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client.argument_kinds import checked
from pinlater.client.capabilities import GROUPS
from pinlater.client.client_calls import ClientCalls
from pinlater.model import CONTINUATION_START, RequestContext
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
)
from pinlater.wire import flow_methods


class FlowClientCalls(ClientCalls):
    """A part of AsyncClient."""

    @checked
    async def create_flow(
        self, flow: NewFlow, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> FlowCreated:
        """Create a flow, whole, with its first items. With a dedupe key sending again is safe."""
        needs = GROUPS if any(stage.group for stage in flow.stages) else None
        return await self._call(flow_methods.CREATE_FLOW, context, timeout, flow, needs=needs)

    @checked
    async def add_flow_items(
        self,
        flow_id: str,
        stage: str,
        items: Sequence[NewItem],
        *,
        seal: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> list[int]:
        """Add items to a stage, all or none, and return their numbers, in order. StageSealed, FlowNotFound."""
        return await self._call(flow_methods.ADD_FLOW_ITEMS, context, timeout, flow_id, stage, items, seal)

    @checked
    async def seal_stage(
        self, flow_id: str, stage: str = "", *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Seal a stage, or with "" those without a parent: no more items come."""
        await self._call(flow_methods.SEAL_STAGE, context, timeout, flow_id, stage)

    @checked
    async def get_flow(
        self, flow_id: str, *, wait_ms: int = 0, context: RequestContext | None = None, timeout: float | None = None
    ) -> FlowStatus:
        """Return a flow in numbers; with `wait_ms` when it is over, or after that time."""
        if wait_ms:
            return await self._call_and_wait(flow_methods.GET_FLOW, context, timeout, wait_ms, flow_id, wait_ms)
        return await self._call(flow_methods.GET_FLOW, context, timeout, flow_id, wait_ms)

    @checked
    async def get_flows(
        self,
        *,
        name: str = "",
        dedupe_key: str = "",
        state: FlowState | None = None,
        continuation: str = CONTINUATION_START,
        limit: int = 100,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> FlowsPage:
        """Return one page of the flows that this caller may see, the newest first."""
        return await self._call(flow_methods.GET_FLOWS, context, timeout, name, dedupe_key, state, continuation, limit)

    @checked
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
        timeout: float | None = None,
    ) -> FlowItemsPage:
        """Return one page of the items of a flow, in order of their numbers."""
        values = (flow_id, stage, state, dedupe_key, numbers, include_body, continuation, limit)
        return await self._call(flow_methods.GET_FLOW_ITEMS, context, timeout, *values)

    @checked
    async def cancel_flow(
        self, flow_id: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> FlowStatus:
        """End a flow: items that have not ended fail as cancelled, workers are asked to stop."""
        return await self._call(flow_methods.CANCEL_FLOW, context, timeout, flow_id)

    @checked
    async def delete_flow(
        self, flow_id: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Remove a flow and all its items; one that runs is cancelled first."""
        await self._call(flow_methods.DELETE_FLOW, context, timeout, flow_id)

    @checked
    async def resume_flow(
        self,
        flow_id: str,
        *,
        stage: str = "",
        expression: str = "",
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> FlowStatus:
        """Try again what the flow failed at."""
        return await self._call(flow_methods.RESUME_FLOW, context, timeout, flow_id, stage, expression)

    @checked
    async def retry_flow_items(
        self,
        flow_id: str,
        numbers: Sequence[int] = (),
        *,
        stage: str = "",
        failed: bool = False,
        and_follows: bool = False,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> FlowRetry:
        """Try items again that have ended: those of these numbers, or with `failed` all that have failed. A flow that
        is over opens again. What was refused is in the answer, with the reason; `and_follows` removes first what had
        followed from them, and lets stages go on that were stopped.
        """
        values = (flow_id, numbers, stage, failed, and_follows)
        return await self._call(flow_methods.RETRY_FLOW_ITEMS, context, timeout, *values)

    @checked
    async def assign_item(
        self,
        number: int,
        *,
        claim_timeout_ms: int | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Assignment:
        """Claim the job of one item, if a dequeue could. ItemNotFound."""
        return await self._call(flow_methods.ASSIGN_ITEM, context, timeout, number, claim_timeout_ms)
