"""The watch over flows: those that cannot go on, asked of their database six times a minute while there are queues of
flows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import structlog

from pinlater.alarms.evidence import StuckFlow
from pinlater.errors import PinLaterError
from pinlater.flows.connection import FlowConnection
from pinlater.model.flow_words import FlowState, FlowStatus
from pinlater.queues.directory import QueueDirectory

_log = structlog.get_logger("pinlater.alarms")
EVERY_S = 10.0
MOST_FLOWS = 100
"""Of those that run, the newest."""


class FlowWatch:
    """For the judge of one process."""

    def __init__(self, connection: FlowConnection, queues: QueueDirectory) -> None:
        self._connection = connection
        self._queues = queues
        self._next_s = 0.0
        self._stuck: Sequence[StuckFlow] = ()

    async def stuck(self) -> Sequence[StuckFlow]:
        """As far as that was asked lately; as before where the database does not answer. Raises nothing."""
        if not self._queues.flow_queues or not self._connection.is_made:
            return ()
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._next_s:
            self._next_s = now_s + EVERY_S
            try:
                running, _ = await self._connection.call(
                    lambda database: database.flows("", "", FlowState.RUNNING, 0, MOST_FLOWS)
                )
                self._stuck = [_stuck(each) for each in running if each.is_stuck or each.troubles]
            except PinLaterError as error:
                _log.warning("flows_not_examined", error=error.message)
        return self._stuck


def _stuck(flow: FlowStatus) -> StuckFlow:
    queue = flow.stages[0].stage.queue if flow.stages else ""
    return StuckFlow(flow.id, flow.name, queue, flow.is_stuck, "; ".join(flow.troubles))
