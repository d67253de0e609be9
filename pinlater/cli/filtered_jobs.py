"""The option --filter: jobs of any queues that a line in the language of the dashboard's page Jobs finds."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import click
from click.core import ParameterSource

from pinlater.cli.connection import readable_status
from pinlater.cli.job_states import found_pages
from pinlater.client.client import Client
from pinlater.job_filters.filter_parser import FilterError, parse_filter
from pinlater.job_filters.job_filter import FilterLine
from pinlater.job_filters.meant_queues import MeantQueues
from pinlater.model import queue_order
from pinlater.model.job_selection import FoundJobs, JobPhase

_PAGE = 1_000


def filter_line(text: str | FilterLine) -> FilterLine:
    """The value of a command line's FILTER. BadParameter."""
    if isinstance(text, FilterLine):
        return text
    try:
        line = parse_filter(text)
    except FilterError as error:
        place = text[error.start : error.end]
        raise click.BadParameter(f"{error.message} (at {place!r})" if place != text else error.message) from None
    if not line.terms:
        raise click.BadParameter("it is empty, and so means all jobs of all queues; give at least queue: or state:")
    return line


def filter_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--filter, as the argument `line`: a FilterLine, or None."""
    return click.option(
        "--filter",
        "line",
        type=filter_line,
        metavar="FILTER",
        help="The jobs that this finds, in one line as on the dashboard: 'queue:mail error:Timeout* age:<1h'.",
    )(command)


def refuse_beside_filter(*names: str) -> None:
    """UsageError: one of these parameters is given too, which says what a filter has to say."""
    context = click.get_current_context()
    for parameter in context.command.params:
        is_given = context.get_parameter_source(parameter.name or "") is not ParameterSource.DEFAULT
        if parameter.name in names and is_given:
            what = parameter.opts[0] if isinstance(parameter, click.Option) else parameter.make_metavar(context)
            raise click.UsageError(f"--filter says which jobs are meant; leave {what} out")


class FilteredQueues:
    """The queues that a filter means, as they were last counted, and what to look for in each of them."""

    def __init__(self, client: Client, line: FilterLine, phases: Collection[JobPhase] | None = None) -> None:
        """`phases`: jobs of other ones are not meant. The errors of Client.cluster_status."""
        is_named = all("*" not in each for term in line.of("queue") for each in term.values)
        names = line.named_queues if is_named else []
        status = readable_status(client, names or None)
        self._meant = MeantQueues(line, status.queues, phases)
        self.now_ms = status.now_ms
        self.names = sorted(self._meant.by_queue, key=queue_order)

    def priorities_of(self, queue: str) -> Sequence[int]:
        """Those that its jobs have."""
        return self._meant.priorities_of(queue)


def found_by_filter(
    client: Client, line: FilterLine, phases: Collection[JobPhase] | None = None, *, limit: int | None = None
) -> Iterator[FoundJobs]:
    """Page by page what a filter finds, up to `limit` jobs, of `phases` where these are given."""
    queues = FilteredQueues(client, line, phases)
    left = limit
    for queue in queues.names:
        selection = line.selection(queue, queues.now_ms, queues.priorities_of(queue))
        if selection is not None and phases is not None:
            selection.phases = [each for each in line.phases if each in phases]
        if selection is None or selection.selects_nothing:
            continue
        for found in found_pages(client, selection, _PAGE if left is None else min(_PAGE, left)):
            found.jobs = found.jobs[:left]
            yield found
            if left is not None:
                left -= len(found.jobs)
                if left <= 0:
                    return
