"""FlowClient: the calls of Client about flows.

Made by `python -m tests.packaging.client_calls` from flow_client_calls.py: change it there."""

from __future__ import annotations

from collections.abc import Sequence

from pinlater.client.async_client import AsyncClient
from pinlater.client.background import BackgroundClient
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


class FlowClient:
    """A part of Client."""

    _background: BackgroundClient

    def create_flow(
        self, flow: NewFlow, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> FlowCreated:
        """Create a flow, whole, with its first items. With a dedupe key sending again is safe."""
        return self._background.run(AsyncClient.create_flow, flow, context=context, timeout=timeout)

    def add_flow_items(
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
        return self._background.run(
            AsyncClient.add_flow_items, flow_id, stage, items, seal=seal, context=context, timeout=timeout
        )

    def seal_stage(
        self, flow_id: str, stage: str = "", *, context: RequestContext | None = None, timeout: float | None = None
    ) -> None:
        """Seal a stage, or with "" those without a parent: no more items come."""
        self._background.run(AsyncClient.seal_stage, flow_id, stage, context=context, timeout=timeout)

    def get_flow(
        self, flow_id: str, *, wait_ms: int = 0, context: RequestContext | None = None, timeout: float | None = None
    ) -> FlowStatus:
        """Return a flow in numbers; with `wait_ms` when it is over, or after that time."""
        return self._background.run(AsyncClient.get_flow, flow_id, wait_ms=wait_ms, context=context, timeout=timeout)

    def get_flows(
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
        return self._background.run(
            AsyncClient.get_flows,
            name=name,
            dedupe_key=dedupe_key,
            state=state,
            continuation=continuation,
            limit=limit,
            context=context,
            timeout=timeout,
        )

    def get_flow_items(
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
        return self._background.run(
            AsyncClient.get_flow_items,
            flow_id,
            stage=stage,
            state=state,
            dedupe_key=dedupe_key,
            numbers=numbers,
            include_body=include_body,
            continuation=continuation,
            limit=limit,
            context=context,
            timeout=timeout,
        )

    def cancel_flow(
        self, flow_id: str, *, context: RequestContext | None = None, timeout: float | None = None
    ) -> FlowStatus:
        """End a flow: items that have not ended fail as cancelled, workers are asked to stop."""
        return self._background.run(AsyncClient.cancel_flow, flow_id, context=context, timeout=timeout)

    def delete_flow(self, flow_id: str, *, context: RequestContext | None = None, timeout: float | None = None) -> None:
        """Remove a flow and all its items; one that runs is cancelled first."""
        self._background.run(AsyncClient.delete_flow, flow_id, context=context, timeout=timeout)

    def resume_flow(
        self,
        flow_id: str,
        *,
        stage: str = "",
        expression: str = "",
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> FlowStatus:
        """Try again what the flow failed at."""
        return self._background.run(
            AsyncClient.resume_flow, flow_id, stage=stage, expression=expression, context=context, timeout=timeout
        )

    def retry_flow_items(
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
        return self._background.run(
            AsyncClient.retry_flow_items,
            flow_id,
            numbers,
            stage=stage,
            failed=failed,
            and_follows=and_follows,
            context=context,
            timeout=timeout,
        )

    def assign_item(
        self,
        number: int,
        *,
        claim_timeout_ms: int | None = None,
        context: RequestContext | None = None,
        timeout: float | None = None,
    ) -> Assignment:
        """Claim the job of one item, if a dequeue could. ItemNotFound."""
        return self._background.run(
            AsyncClient.assign_item, number, claim_timeout_ms=claim_timeout_ms, context=context, timeout=timeout
        )
