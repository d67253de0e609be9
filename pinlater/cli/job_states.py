"""The states of jobs on the command line: their words as options, what each asks a server for, and counts by them.

The wire counts by its four states. What is finer, jobs that wait and jobs that were cancelled or replayed, is found by
a search while there are few, and else taken from the counts that the servers keep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce, wraps
from typing import Any, NamedTuple

import click

from pinlater.cli.completion import one_of
from pinlater.client.client import Client
from pinlater.clock import SystemClock
from pinlater.errors import NoHealthyShards, RequestInvalid
from pinlater.model import CONTINUATION_END, CONTINUATION_START, JobFilter, JobInfo, JobState
from pinlater.model.job_selection import FoundJobs, JobPhase, JobSelection, TextCondition

_PAGE = 1_000
MOST_LOOKED_AT = 20_000
"""Of a queue with more failed or pending jobs a search takes longer than who counts them waits for."""


class WantedState(NamedTuple):
    """Jobs of these phases, which are in this state of the wire.

    `future`: only those whose run_after is yet to come, or only those whose time has come; None: it does not matter.
    """

    state: JobState
    phases: tuple[JobPhase, ...]
    future: bool | None = None

    @property
    def is_of_wire(self) -> bool:
        """It is what the wire counts, without anything finer."""
        return self.state is not JobState.FAILED and (self.state is not JobState.PENDING or self.future is not None)


_WORDS = {
    **{phase.word: WantedState(phase.state, (phase,)) for phase in JobPhase.in_order()},
    "pending": WantedState(JobState.PENDING, (JobPhase.READY, JobPhase.WAITING), future=False),
    "in_progress": WantedState(JobState.IN_PROGRESS, (JobPhase.IN_PROGRESS,)),
}
"""The last two are those of the wire, which counted before there were others."""

_HELP = (
    f"The state of the jobs: {', '.join(phase.word for phase in JobPhase.in_order())}; or pending, which is ready or "
    "waiting."
)


def state_choice(*allowed: JobState) -> Callable[[str | JobState], JobState]:
    """The type of an option that takes one of these states of the wire."""
    names = {state.name.lower(): state for state in allowed}
    others = {JobPhase.IN_PROGRESS.word: JobState.IN_PROGRESS} if JobState.IN_PROGRESS in allowed else {}

    def state(text: str | JobState) -> JobState:
        found = text if isinstance(text, JobState) else (names | others).get(text.lower().replace("-", "_"))
        if found is None:
            raise click.BadParameter(f"{text!r} is no state; allowed: {', '.join(names | others)}")
        return found

    return state


def state_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--state, as a JobState."""
    return click.option(
        "--state",
        type=state_choice(*JobState),
        metavar="STATE",
        shell_complete=one_of(*(state.name.lower() for state in JobState)),
        help=f"The state of the jobs: {', '.join(state.name.lower() for state in JobState)}.",
    )(command)


class _Wanted(click.ParamType[WantedState]):
    """A state by its word."""

    name = "state"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> WantedState:
        found = value if isinstance(value, WantedState) else _WORDS.get(str(value).lower().replace("-", "_"))
        if found is None:
            self.fail(f"{value!r} is no state; allowed: {', '.join(_WORDS)}", param, ctx)
        return found

    def get_missing_message(self, param: click.Parameter, ctx: click.Context | None) -> str:
        return f"One of {', '.join(_WORDS)}"


def wanted_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """--state and --future, as `wanted`."""

    @wraps(command)
    def with_state(state: WantedState, future: bool, **options: Any) -> None:
        command(wanted=state._replace(future=True) if future else state, **options)

    decorated: Callable[..., Any] = with_state
    for option in (
        click.option(
            "--future", is_flag=True, help="Jobs that may run only later, in place of those whose time has come."
        ),
        click.option(
            "--state", type=_Wanted(), required=True, metavar="STATE", shell_complete=one_of(*_WORDS), help=_HELP
        ),
    ):
        decorated = option(decorated)
    return decorated


def words_of(phases: Iterable[JobPhase]) -> str:
    """
    >>> words_of([JobPhase.READY, JobPhase.SCHEDULED, JobPhase.WAITING])
    'ready, scheduled or waiting'
    """
    *others, last = (phase.word for phase in phases)
    return f"{', '.join(others)} or {last}" if others else last


def selection_of(
    queue: str,
    phases: Sequence[JobPhase] | None,
    priority: int | None,
    match: str,
    status_match: str,
    tags: Sequence[str] = (),
) -> JobSelection:
    return JobSelection(
        queue,
        phases,
        None if priority is None else (priority,),
        (TextCondition(match),) if match else (),
        (TextCondition(status_match),) if status_match else (),
        tags=tags,
    )


def found_pages(client: Client, selection: JobSelection, limit: int) -> Iterator[FoundJobs]:
    continuation = CONTINUATION_START
    while True:
        found = client.search_jobs(selection, limit=limit, continuation=continuation)
        yield found
        continuation = found.continuation
        if continuation == CONTINUATION_END:
            return


class Apart(NamedTuple):
    """Jobs that wait, those among them that may run only later, and those that were cancelled or replayed."""

    waiting: int = 0
    waiting_later: int = 0
    cancelled: int = 0
    replayed: int = 0


def count_apart(client: Client, queue: str, phases: Sequence[JobPhase]) -> dict[int, Apart]:
    """By priority, of these phases. Exact up to some jobs that a search has to look at; where there are more, as the
    servers last counted them, some seconds ago, and then those that may run only later are not told apart.
    """
    try:
        return _count_apart(client, queue, phases)
    except RequestInvalid:  # a server of a version without replayed jobs has none
        if JobPhase.REPLAYED not in phases:
            raise
        return _count_apart(client, queue, [phase for phase in phases if phase is not JobPhase.REPLAYED])


def _count_apart(client: Client, queue: str, phases: Sequence[JobPhase]) -> dict[int, Apart]:
    found: dict[int, Apart] = {}
    examined = 0
    for page in found_pages(client, selection_of(queue, phases, None, "", ""), _PAGE):
        for info in page.jobs:
            found[info.priority] = _with(found.get(info.priority, Apart()), info)
        examined += page.looked_at
        if examined > MOST_LOOKED_AT:
            levels = [level for each in client.cluster_status(queues=[queue]).queues for level in each.levels]
            return {level.priority: Apart(level.waiting, 0, level.cancelled, level.replayed) for level in levels}
    return found


def _with(counted: Apart, info: JobInfo) -> Apart:
    if info.replayed_to is not None:
        return counted._replace(replayed=counted.replayed + 1)
    if info.state is JobState.FAILED:
        return counted._replace(cancelled=counted.cancelled + 1)
    return counted._replace(waiting=counted.waiting + 1, waiting_later=counted.waiting_later + is_later(info))


def count_jobs(
    client: Client,
    queue: str,
    wanted: WantedState,
    priority: int | None,
    match: str,
    tags: Sequence[str] = (),
    *,
    partial: bool,
) -> int:
    """The errors of Client.count."""
    if tags:
        return _count_tagged(client, selection_of(queue, wanted.phases, priority, match, "", tags), wanted, partial)
    futures = (False, True) if wanted.future is None else (wanted.future,)
    filters = [JobFilter(queue, wanted.state, priority, future, match) for future in futures]
    counts = client.counts(filters, allow_partial=partial)
    if wanted.is_of_wire or not any(counts):
        return sum(counts)
    kinds = [JobPhase.WAITING] if wanted.state is JobState.PENDING else [JobPhase.CANCELLED, JobPhase.REPLAYED]
    if match or (wanted.future is not None and wanted.state is JobState.FAILED):
        pages = found_pages(client, selection_of(queue, kinds, priority, match, ""), _PAGE)
        infos = (info for page in pages for info in page.jobs)
        apart = reduce(_with, (info for info in infos if wanted.future in (None, is_later(info))), Apart())
    else:
        found = count_apart(client, queue, kinds)
        levels = found.values() if priority is None else [found.get(priority, Apart())]
        apart = Apart(*map(sum, zip(*levels, strict=True))) if levels else Apart()
    if wanted.state is JobState.FAILED:
        failed = max(0, sum(counts) - apart.cancelled - apart.replayed)
        by_phase = {JobPhase.CANCELLED: apart.cancelled, JobPhase.REPLAYED: apart.replayed, JobPhase.FAILED: failed}
        return by_phase[wanted.phases[0]]
    later, now = apart.waiting_later, apart.waiting - apart.waiting_later
    if JobPhase.WAITING in wanted.phases:
        return {None: now + later, False: now, True: later}[wanted.future]
    if wanted.phases == (JobPhase.SCHEDULED,):
        return max(0, counts[-1] - later)
    return max(0, counts[0] - now)


def _count_tagged(client: Client, selection: JobSelection, wanted: WantedState, partial: bool) -> int:
    """NoHealthyShards: a shard cannot be read, and the count is not to be partial."""
    if wanted.state is JobState.PENDING and wanted.future:
        selection = replace(selection, phases=(JobPhase.SCHEDULED,))
    count = 0
    for page in found_pages(client, selection, _PAGE):
        if page.missing_shards and not partial:
            missing = ", ".join(page.missing_shards)
            raise NoHealthyShards(f"shards cannot be read: {missing}; --partial counts what is there without them")
        count += len(page.jobs)
    return count


def is_later(info: JobInfo) -> bool:
    """It may run only later, as far as its time goes."""
    return info.run_after_ms > SystemClock().now_ms()
