"""Commands of operators to workers, within the rights of the callers that give them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pinlater.cluster.worker_entries import SeenWorker
from pinlater.errors import RequestInvalid
from pinlater.model import (
    EVERY_QUEUE,
    AccessAction,
    CommandedWorker,
    CommandOutcome,
    HeartbeatAnswer,
    HeartbeatAnswers,
    RequestContext,
    WorkerCommand,
    WorkerReport,
    WorkersCommanded,
)
from pinlater.service.cluster_parts import ReportedWorkers
from pinlater.service.rights import READ, may
from pinlater.service.worker_reports import reporter

_OPERATE = (AccessAction.OPERATE,)
MAX_NAMED = 1_000


class MeantWorkers(NamedTuple):
    """To which workers a command is given: those that are named, by their ids or as HOST:PID; else those of a host, of
    a name, or of both; else all.
    """

    named: Sequence[str]
    host: str
    name: str
    are_all: bool

    def check(self) -> None:
        """RequestInvalid."""
        ways = [bool(self.named), bool(self.host or self.name), self.are_all]
        if sum(ways) != 1:
            raise RequestInvalid("no workers are given: name them, or a host and a name, or ask for all")
        if len(self.named) > MAX_NAMED:
            raise RequestInvalid.of("the length of workers", len(self.named), f"at most {MAX_NAMED}")

    def are(self, worker: SeenWorker) -> bool:
        report = worker.report
        if self.named:
            return report.id in self.named or f"{report.host}:{report.pid}" in self.named
        return (not self.host or report.host == self.host) and (not self.name or report.name == self.name)

    @property
    def text(self) -> str:
        """For the audit."""
        if self.named:
            return ", ".join(self.named)
        parts = [f"host {self.host}"] * bool(self.host) + [f"name {self.name}"] * bool(self.name)
        return ", ".join(parts) or "all workers"


async def give(
    workers: ReportedWorkers | None, command: WorkerCommand, meant: MeantWorkers, context: RequestContext | None
) -> WorkersCommanded:
    """RequestInvalid: nothing is named. NoHealthyShards and other errors of the store: it is to be given again."""
    meant.check()
    if workers is None:
        return WorkersCommanded([CommandedWorker(text, CommandOutcome.NOT_KNOWN) for text in meant.named])
    known, missing = await workers.known()
    found = [each for each in known if each.report.outbox is None and meant.are(each) and _is_shown(each, context)]
    commanded = [(each, _outcome(each, context)) for each in found]
    taking = [each for each, outcome in commanded if outcome is CommandOutcome.TAKEN]
    if taking:
        await workers.commands.give(command, taking)
    answers = [
        CommandedWorker(each.report.id, outcome, each.report.name, each.report.host, each.report.pid)
        for each, outcome in commanded
    ]
    there = {text for each in found for text in (each.report.id, f"{each.report.host}:{each.report.pid}")}
    answers += [
        CommandedWorker(text, CommandOutcome.NOT_KNOWN) for text in dict.fromkeys(meant.named) if text not in there
    ]
    return WorkersCommanded(answers, missing)


def _is_shown(worker: SeenWorker, context: RequestContext | None) -> bool:
    """Who may read all queues sees all workers, and else those that have a queue which the caller may read."""
    if may(context, READ, EVERY_QUEUE):
        return True
    return any(may(context, READ, queue) for queue in worker.report.queues)


def _outcome(worker: SeenWorker, context: RequestContext | None) -> CommandOutcome:
    queues = worker.report.queues or (EVERY_QUEUE,)
    if not all(may(context, _OPERATE, queue) for queue in queues):
        return CommandOutcome.FORBIDDEN
    return CommandOutcome.TOO_OLD if worker.report.is_quiet is None else CommandOutcome.TAKEN


async def answered(
    workers: ReportedWorkers,
    report: WorkerReport,
    answers: Sequence[HeartbeatAnswer],
    context: RequestContext | None,
) -> HeartbeatAnswers:
    """The answers to heartbeats, with what the worker is to do whose report came along."""
    found = HeartbeatAnswers(answers)
    found.command = await workers.commands.for_worker((reporter(context), report.id))
    return found


def counts_text(commanded: WorkersCommanded) -> str:
    """
    >>> counts_text(WorkersCommanded([CommandedWorker("a", CommandOutcome.TAKEN)] * 2))
    '2 taken'
    """
    counts = Counter(each.outcome for each in commanded.workers)
    return ", ".join(f"{counts[each]} {str(each).replace('_', ' ')}" for each in CommandOutcome if counts[each])
