"""`pinlater history`: histories of calls, judged, looked at and brought to an end."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from pinlater.cli.connection import EXIT_CODES, ServerGroup, say, server_options, target_client
from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from pinlater.cli.output import Row, counted, json_keys_option, output_option, whole, write_all
from pinlater.cli.progress import StatusLine
from pinlater.cli.target import Target
from pinlater.cli.times import duration_option, duration_or_zero_option, time_text
from pinlater.client.client import Client
from pinlater.data_folder.private_files import write_private_file
from pinlater.history.call_events import Note
from pinlater.history.checker import check as judged
from pinlater.history.checker.verdict import Verdict
from pinlater.history.history_files import HistoryInvalid, clock_of, files_in, merged_history
from pinlater.history.job_story import StoryLine, calls_of, job_story
from pinlater.history.open_jobs import open_jobs
from pinlater.history.recorder import event_line, header
from pinlater.model import JobState
from pinlater.printable import json_text, printable
from pinlater.sizes import size_text

STORY_COLUMNS = (whole("time"), "took", whole("call"), "by", whole("did"), whole("outcome"), "details")
_JOBS_A_LOOKUP = 1_000
_PAUSE_S = 1.0
_LIVE = (JobState.PENDING, JobState.IN_PROGRESS)


@contextmanager
def mistakes_in_files() -> Iterator[None]:
    """A file that is no history is a mistake of the command line."""
    try:
        yield
    except HistoryInvalid as invalid:
        say(str(invalid))
        raise SystemExit(EXIT_USAGE) from None


class ReadProgress:
    """How much of some files was read, shown on a terminal."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._all = sum(file.stat().st_size for file in files)
        self._read = 0
        self._line = StatusLine()

    def __call__(self, size: int) -> None:
        self._read += size
        self._line.show(f"{size_text(self._read)} of {size_text(self._all)} read")

    def clear(self) -> None:
        self._line.clear()


@click.group(cls=ServerGroup)
def history() -> None:
    """Judge what a cluster answered: record a run, and see whether one order explains it.

    Programs record while PINLATER_HISTORY names a folder, or with AsyncClient(history=FOLDER): docs/history.md.
    """


def _files_argument(command: Any) -> Any:
    kind = click.Path(exists=True, path_type=Path)
    return click.argument("files", metavar="FILE...", type=kind, nargs=-1, required=True)(command)


# -- check -------------------------------------------------------------------------------------------------------------

CHECK_CODES = """\b
Exit codes: 0 explained, 1 not explained, 2 wrong command line, or a file that is no history, 130 interrupted."""


@history.command(
    short_help="Judge histories: explained, or the calls that contradict.",
    epilog=f"""\b
Examples:
  pinlater history check monday.jsonl
  pinlater history check runs/monday
  pinlater history check web.jsonl workers.jsonl --tolerance 50ms
  pinlater history check monday.jsonl -o json

{CHECK_CODES}""",
)
@_files_argument
@click.option(
    "--tolerance",
    "tolerance_ms",
    type=duration_or_zero_option,
    metavar="DURATION",
    help="How far the clocks of callers and servers may differ. [default: the largest that a file names]",
)
@click.option(
    "-o",
    "--output",
    "format",
    type=click.Choice(("text", "json")),
    default="text",
    show_default=True,
    help="How to print.",
)
@json_keys_option
def check(files: tuple[Path, ...], tolerance_ms: int | None, format: str) -> None:
    """Judge whether one order of events that the semantics of PinLater allow explains what callers were answered.

    A FILE may be a folder, for all histories in it; they are judged as one, by the times of their events. What cannot
    be explained is shown with the rule that it breaks and with as few calls as contradict each other.
    """
    with mistakes_in_files():
        paths = files_in(files)
        progress = ReadProgress(paths)
        clock = clock_of(paths)
        tolerance = clock.tolerance_ms if tolerance_ms is None else tolerance_ms
        try:
            events = merged_history(paths, progress)
            verdict = judged(events, tolerance_ms=tolerance, has_one_clock=bool(clock.name) or not tolerance)
        finally:
            progress.clear()
    if format == "json":
        click.echo(json_text(verdict_object(verdict)))
    else:
        for text in verdict.lines():
            click.echo(printable(text))
    if not verdict.is_explained:
        raise SystemExit(EXIT_FAILED)


def verdict_object(verdict: Verdict) -> dict[str, Any]:
    """For programs."""
    return {
        "explained": verdict.is_explained,
        "violations": [{**asdict(each), "basis": each.basis} for each in verdict.violations],
        "left_out": verdict.left_out,
        "calls": verdict.calls,
        "judged": dict(verdict.judged),
        "passed_over": dict(verdict.passed_over),
        "unknown": verdict.unknown,
        "jobs": verdict.jobs,
        "unjudged_jobs": verdict.unjudged_jobs,
        "unsettled_jobs": verdict.unsettled_jobs,
        "callers": verdict.callers,
        "first_ms": verdict.first_ms,
        "last_ms": verdict.last_ms,
        "is_over": verdict.is_over,
    }


# -- show --------------------------------------------------------------------------------------------------------------


def story_row(each: StoryLine) -> Row:
    return {
        "time": time_text(round(each.at_ms)),
        "took": "" if each.took_ms is None else f"{each.took_ms:.1f} ms",
        "call": each.call or None,
        "by": each.by,
        "did": each.did,
        "outcome": each.outcome,
        "details": " ".join(f"{name}={value}" for name, value in each.details.items()),
    }


@history.command(
    short_help="Show the calls about one job, or one call.",
    epilog=f"""\b
Examples:
  pinlater history show monday.jsonl --job mail:s1:p1:1790000000000000
  pinlater history show runs/monday --job mail:s1:p1:1790000000000000 -o jsonl
  pinlater history show monday.jsonl --call 1712

{EXIT_CODES}""",
)
@_files_argument
@click.option("--job", metavar="DESCRIPTOR", help="What each call was to this job, in the order of the calls.")
@click.option("--call", "number", type=int, metavar="N", help="The call with this number, whole.")
@output_option
def show(files: tuple[Path, ...], job: str | None, number: int | None, format: str) -> None:
    """Show the calls of a history about one job in order, or one call as it was recorded.

    A FILE may be a folder, for all histories in it. Numbers of calls are those that `check` names for the same files.
    """
    if (job is None) is (number is None):
        raise click.UsageError("give --job DESCRIPTOR or --call N")
    with mistakes_in_files():
        events = merged_history(files_in(files))
        if number is not None:
            lines = [event_line(each).decode().rstrip("\n") for each in calls_of(events, number)]
            for text in lines:
                click.echo(printable(text))
            is_there = bool(lines)
        else:
            story = job_story(events, job or "")
            write_all(format, STORY_COLUMNS, story, story_row, StoryLine._asdict)
            is_there = any(each.call for each in story)
    if not is_there:
        say(f"no call of the history names {job}" if number is None else f"the history has no call {number}")
        raise SystemExit(EXIT_FAILED)


# -- finish ------------------------------------------------------------------------------------------------------------


@history.command(
    short_help="Look up what became of open jobs, and end a history.",
    epilog=f"""\b
Examples:
  pinlater history finish runs/monday --out monday.jsonl
  pinlater history finish runs/monday --out monday.jsonl --within 5m
  pinlater history finish web.jsonl workers.jsonl --out monday.jsonl --open --server queue-1:9010

{EXIT_CODES}""",
)
@_files_argument
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), required=True, help="The file to write.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
@click.option(
    "--within",
    "within_ms",
    type=duration_or_zero_option,
    metavar="DURATION",
    default=0,
    help="How long to wait for jobs that have not ended. [default: not at all]",
)
@click.option("--open", "stays_open", is_flag=True, help="Write no end: jobs that have not ended are not stuck.")
@click.option(
    "--timeout",
    "timeout_ms",
    type=duration_option,
    metavar="DURATION",
    default=10_000,
    help="How long one call may take, all its attempts together. [default: 10s]",
)
@server_options
def finish(
    target: Target,
    files: tuple[Path, ...],
    out: Path,
    force: bool,
    within_ms: int,
    stays_open: bool,
    timeout_ms: int,
) -> None:
    """Bring histories into one file that can be judged to its end.

    A FILE may be a folder, for all histories in it. Jobs whose ends no call has seen are looked up at a server, and
    these lookups stand in the file as calls of their own. Its last line says that the run is over and was drained: a
    job that has still not ended is stuck then. So end workers and producers first, or give --open.
    """
    if out.exists() and not force:
        raise click.UsageError(f"{out} is there already; --force writes over it")
    with mistakes_in_files(), TemporaryDirectory(prefix="pinlater-history-") as own:
        paths = files_in(files)
        progress = ReadProgress(paths)
        descriptors = open_jobs(merged_history(paths, progress))
        progress.clear()
        if descriptors:
            with target_client(target, timeout_ms, patient=True, history=Path(own)) as client:
                left = live_jobs(client, descriptors, within_ms)
            say(f"{counted(len(descriptors), 'job')} looked up; {len(left):,} have not ended")
            paths = [*paths, *files_in([Path(own)])]
        write_private_file(out, _lines(paths, None if stays_open else Note("end", time.time_ns() / 1_000_000)))


def live_jobs(client: Client, descriptors: Sequence[str], within_ms: int) -> list[str]:
    """Those of these jobs that have still not ended after that time. Each is looked up once at least."""
    until_s = time.monotonic() + within_ms / 1_000
    while True:
        live: list[str] = []
        for start in range(0, len(descriptors), _JOBS_A_LOOKUP):
            part = descriptors[start : start + _JOBS_A_LOOKUP]
            live += [name for name, job in client.lookup(part).items() if job.state in _LIVE]
        if not live or time.monotonic() >= until_s:
            return live
        descriptors = live
        time.sleep(_PAUSE_S)


def _lines(paths: Sequence[Path], end: Note | None) -> Iterator[bytes]:
    yield header(*clock_of(paths))
    yield from map(event_line, merged_history(paths))
    if end is not None:
        yield event_line(end)
