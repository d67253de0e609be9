"""The watch over flows: those that cannot go on or wait for a seal, asked of their database six times a minute while
there are queues of flows, and whether it answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import structlog

from pinlater.alarms.evidence import FlowFacts, StuckFlow, UnsealedStage
from pinlater.clock import Clock
from pinlater.errors import PinLaterError
from pinlater.flows.connection import FlowConnection
from pinlater.flows.views import CAUSE_HIDDEN
from pinlater.model.flow_words import FlowState, FlowStatus
from pinlater.queues.directory import QueueDirectory

_log = structlog.get_logger("pinlater.alarms")
EVERY_S = 10.0
MOST_FLOWS = 100
"""Of those that run, the newest."""

FAILURES = 3
"""In a row: then the database is away, and not only being opened."""

WAIT_S = 1.0
"""A judgement waits no longer; what comes later is in the next one."""


class FlowWatch:
    """For the judge of one process."""

    def __init__(
        self, connection: FlowConnection, queues: QueueDirectory, clock: Clock, every_s: float = EVERY_S
    ) -> None:
        self._connection = connection
        self._queues = queues
        self._clock = clock
        self._every_s = every_s
        self._next_s = 0.0
        self._asking: asyncio.Task[None] | None = None
        self._failures = 0
        self._facts = FlowFacts()

    async def facts(self) -> FlowFacts:
        """As far as that was asked lately; as before where the database does not answer. Raises nothing."""
        if not self._queues.flow_queues or not self._connection.is_made:
            return FlowFacts()
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s and (self._asking is None or self._asking.done()):
            self._next_s = now_s + self._every_s
            self._asking = asyncio.get_running_loop().create_task(self._ask())
        if self._asking is not None:
            await asyncio.wait([self._asking], timeout=WAIT_S)
        return self._facts

    async def _ask(self) -> None:
        try:
            running, _ = await self._connection.call(
                lambda database: database.flows("", "", FlowState.RUNNING, 0, MOST_FLOWS)
            )
        except PinLaterError as error:
            _log.warning("flows_not_examined", error=error.message)
            self._failed(error.message)
            return
        except Exception:
            _log.exception("flows_not_examined")
            self._failed("a fault of the server, whose log has it (flows_not_examined)")
            return
        self._failures = 0
        since_ms = {(each.flow_id, each.stage, each.items): each.since_ms for each in self._facts.unsealed}
        stuck = [_stuck(each) for each in running if each.is_stuck or each.troubles]
        self._facts = FlowFacts(stuck, unsealed_stages(running, since_ms, self._clock.now_ms()))

    def _failed(self, why: str) -> None:
        self._failures += 1
        if self._failures >= FAILURES:
            self._facts = self._facts._replace(problem=why)

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


def unsealed_stages(
    running: Sequence[FlowStatus], since_ms: Mapping[tuple[str, str, int], int], now_ms: int
) -> list[UnsealedStage]:
    """The stages whose items have all ended and that alone their seal keeps open. `since_ms`: when one with so many
    items was seen first.
    """
    found = []
    for flow in running:
        complete = {each.stage.name for each in flow.stages if each.is_complete}
        for each in flow.stages:
            is_fed = bool(each.stage.parent) and each.stage.parent not in complete
            if each.is_sealed or each.pending or each.applet_errors or is_fed:
                continue
            first_ms = since_ms.get((flow.id, each.stage.name, each.items), now_ms)
            found.append(UnsealedStage(flow.id, flow.name, each.stage.queue, each.stage.name, each.items, first_ms))
    return found


def _stuck(flow: FlowStatus) -> StuckFlow:
    queue = flow.stages[0].stage.queue if flow.stages else ""
    childless = sum(each.applet_errors for each in flow.stages)
    why = "; ".join(flow.troubles).replace(CAUSE_HIDDEN, "the flow's page says why")  # to whom it may
    return StuckFlow(flow.id, flow.name, queue, flow.is_stuck, why, childless)
