"""Histories as files of JSON lines: read one by one or merged by time, and written as whole lines."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing
from operator import attrgetter
from pathlib import Path

from msgspec import DecodeError
from msgspec.json import Decoder
from msgspec.structs import replace

from pinlater.history.call_events import FORMAT, CallBegin, CallEnd, Event, HistoryLine

_decode = Decoder(HistoryLine).decode


SUFFIX = ".jsonl"
"""Of the files that a folder of histories is made of."""


class HistoryInvalid(ValueError):
    """A file that is no history, or has a line that is broken."""


def files_in(given: Sequence[Path]) -> list[Path]:
    """These files, with a folder for those that it has. HistoryInvalid: a folder without any."""
    files: list[Path] = []
    for path in given:
        found = sorted(path.glob(f"*{SUFFIX}")) if path.is_dir() else [path]
        if not found:
            raise HistoryInvalid(f"{path}: the folder has no history, which is a file *{SUFFIX}")
        files += found
    return files


def read_history(path: Path, progress: Callable[[int], object] = lambda _: None) -> Generator[Event]:
    """The events of one file in order, in bounded memory. HistoryInvalid; OSError."""
    with path.open("rb") as lines:
        yield from events_in(lines, path, progress)


def events_in(
    lines: Iterable[bytes], path: Path, progress: Callable[[int], object] = lambda _: None
) -> Generator[Event]:
    """The events of the lines of one file, which errors name. HistoryInvalid.

    Half a line at the end is what a crash left, and is passed over. `progress` is told how many bytes each line had.
    """
    for number, raw in enumerate(lines, 1):
        if number == 1:
            _check_header(path, raw)
        elif raw.endswith(b"\n"):
            try:
                event = _decode(raw).event()
            except (DecodeError, ValueError) as error:
                raise HistoryInvalid(f"{path}, line {number}: {error}") from None
            yield event
        progress(len(raw))


def tolerance_of(paths: Sequence[Path]) -> float:
    """The largest tolerance that these files name, in milliseconds. HistoryInvalid; OSError."""
    tolerances = []
    for path in paths:
        with path.open("rb") as lines:
            tolerances.append(_check_header(path, lines.readline()))
    return max(tolerances, default=0.0)


def merged_history(paths: Sequence[Path], progress: Callable[[int], object] = lambda _: None) -> Iterator[Event]:
    """The events of several files as one history, by their times; calls get numbers of their own. HistoryInvalid;
    OSError.
    """
    if len(paths) == 1:
        yield from read_history(paths[0], progress)
        return
    with ExitStack() as stack:
        parts = [
            stack.enter_context(closing(_renumbered(read_history(path, progress), place, len(paths))))
            for place, path in enumerate(paths)
        ]
        yield from heapq.merge(*parts, key=attrgetter("at_ms"))


def _renumbered(events: Iterator[Event], place: int, files: int) -> Generator[Event]:
    for event in events:
        if isinstance(event, CallBegin | CallEnd):
            yield replace(event, call=event.call * files + place)
        else:
            yield event


def _check_header(path: Path, raw: bytes) -> float:
    """The tolerance that it names. A process that died at once leaves an empty file."""
    if not raw:
        return 0.0
    try:
        header = _decode(raw)
    except (DecodeError, ValueError) as error:
        raise HistoryInvalid(f"{path}, line 1: {error}") from None
    if header.pinlater_history is None:
        raise HistoryInvalid(f'{path}, line 1: no header of a history; it begins with {{"pinlater_history": {FORMAT}}}')
    if header.pinlater_history != FORMAT:
        raise HistoryInvalid(f"{path}, line 1: a history of version {header.pinlater_history}; this reads {FORMAT}")
    return header.tolerance_ms
