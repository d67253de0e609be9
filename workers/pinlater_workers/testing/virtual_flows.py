"""The flows of a test: their database is the servers' own, in a folder that goes away; their items run as jobs do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol

from pinlater.clock import Clock
from pinlater.errors import install_command
from pinlater.flows.callback_job import callback_job, status_document
from pinlater.flows.ends import EndOutcome, ItemEnd, RecordedEnd, sees_all
from pinlater.flows.flow_limits import check_flow, check_items, json_mistake
from pinlater.flows.item_jobs import item_job, item_number
from pinlater.model import ExtendedJob, KeyRef
from pinlater.model.flow_words import FlowCreated, FlowStatus, NewFlow, NewItem
from pinlater_workers.errors import NotPlayed
from pinlater_workers.jobs.attempt_record import worker_name
from pinlater_workers.jobs.outcome import Action, Outcome
from pinlater_workers.testing.memory import Run

if TYPE_CHECKING:
    from pinlater.flows.database import FlowDatabase

WINDOW = BATCH = 1_000
NO_RESULT = b"null"


class FlowHost(Protocol):
    """The jobs of the test."""

    @property
    def clock(self) -> Clock: ...

    def put(self, queue: str, job: ExtendedJob) -> str:
        """Keep a job that is no caller's; its descriptor. The queue comes into being."""

    def cancel_jobs(
        self, queue: str | None, descriptors: Sequence[str], keys: Sequence[KeyRef], *, running: bool
    ) -> object: ...


class VirtualFlows:
    """Flows of one test. `posts`: what URLs would have been told, each with what it would have got."""

    def __init__(self, host: FlowHost) -> None:
        self._host = host
        self._database: FlowDatabase | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self.posts: list[tuple[str, dict[str, Any]]] = []

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        if self._folder is not None:
            self._folder.cleanup()

    @property
    def database(self) -> FlowDatabase:
        """NotPlayed: what it needs is not installed."""
        if self._database is None:
            try:
                opened = import_module("pinlater.flows.database").FlowDatabase
            except ImportError as error:
                needed = f"flows in a test need what a server needs ({error})"
                raise NotPlayed(f"{needed}: {install_command('server')}") from error
            self._folder = TemporaryDirectory(prefix="pinlater-flows-")
            self._database = opened(f"sqlite:///{self._folder.name}/flows.db")
            self._database.open()
        return self._database

    def create(self, flow: NewFlow) -> FlowCreated:
        check_flow(flow)
        created = self.database.create(flow, self._now_ms)
        self._go_on(created.id)
        return created

    def add(self, flow_id: str, stage: str, items: Sequence[NewItem], *, seal: bool = False) -> list[int]:
        check_items(items)
        numbers = self.database.add(flow_id, stage, items, self._now_ms, seal=seal)
        self._go_on(flow_id)
        return numbers

    def seal(self, flow_id: str, stage: str) -> None:
        self.database.seal(flow_id, stage, self._now_ms)
        self._go_on(flow_id)

    def cancel(self, flow_id: str) -> FlowStatus:
        self.database.cancel(flow_id, self._now_ms)
        self._stop(flow_id)
        self._go_on(flow_id)
        return self.status(flow_id)

    def delete(self, flow_id: str) -> None:
        self.cancel(flow_id)
        while not self.database.delete(flow_id, BATCH):
            pass

    def resume(self, flow_id: str, stage: str, expression: str) -> FlowStatus:
        self.database.resume(flow_id, stage, expression, self._now_ms)
        self._go_on(flow_id)
        return self.status(flow_id)

    def status(self, flow_id: str) -> FlowStatus:
        return self.database.status(flow_id, sees_all)

    def is_over(self, flow_id: str) -> bool:
        return flow_id in self.database.over_among([flow_id])

    def end(self, run: Run, outcome: Outcome) -> Outcome:
        """What became of an attempt, as it counts for the job. Of an item it is recorded first."""
        number = item_number(run.dedupe_key) if self._database is not None else 0
        if not number or outcome.action not in _RECORDED:
            return outcome
        mistake, result = "", None
        if outcome.action is Action.SUCCEED:
            result = outcome.result or NO_RESULT
            mistake = json_mistake(result)
        reason = f"the result cannot be kept: {mistake}" if mistake else outcome.status.strip()
        is_final = outcome.action in (Action.FAIL, Action.CANCEL)
        said = ItemEnd(
            run.descriptor,
            None if mistake else result,
            run.claim_descriptor,
            worker_name(),
            reason,
            is_final,
            number,
        )
        recorded = self.database.record([said], self._now_ms)
        for flow_id in recorded.stopping:
            self._stop(flow_id)
        self._go_on(*recorded.over)
        return self._told(outcome, recorded.ends[0])

    def _told(self, outcome: Outcome, recorded: RecordedEnd) -> Outcome:
        if recorded.outcome is EndOutcome.RETRY:
            delay_ms = max(0, recorded.retry_ms - self._now_ms)
            return replace(outcome, action=Action.RETRY, delay_ms=delay_ms, result=None)
        failed = recorded.outcome is EndOutcome.FAILED
        return replace(outcome, action=Action.FAIL if failed else Action.SUCCEED, result=None)

    def _go_on(self, *flow_ids: str) -> None:
        """Items come into their queues, and callbacks of these flows are made."""
        while waiting := self.database.waiting(WINDOW, BATCH):
            jobs = {item.number: self._host.put(item.stage.queue, item_job(item)) for item in waiting}
            self.database.queued(jobs, self._now_ms)
        for flow_id in flow_ids:
            for due in self.database.take_callbacks(self._now_ms, self._now_ms, 1, flow_id):
                if due.callback.url:
                    self.posts.append((due.callback.url, status_document(due.status)))
                else:
                    self._host.put(due.callback.queue, callback_job(due))
                self.database.callback_made(due.flow, self._now_ms)

    def _stop(self, flow_id: str) -> None:
        is_done = False
        while not is_done:
            jobs, is_done = self.database.stop(flow_id, self._now_ms, BATCH)
            for each in jobs:
                self._host.cancel_jobs(each.queue, [each.job], (), running=True)
        self._go_on(flow_id)

    @property
    def _now_ms(self) -> int:
        return self._host.clock.now_ms()


_RECORDED = (Action.SUCCEED, Action.RETRY, Action.FAIL, Action.CANCEL)
