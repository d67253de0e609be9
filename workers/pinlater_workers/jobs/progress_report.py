"""The report of a job that runs: how far it is, and the lines of its log. It goes with heartbeats, and with the ack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pinlater.model import MAX_LOG_BYTES, MAX_LOG_LINE_BYTES, MAX_LOG_LINES, LogLine

SURELY_SENT_MS = 30_000
"""What went with a heartbeat so long ago is not said again by the ack."""


class ProgressReport(NamedTuple):
    """How far a job says it is: a fraction from 0 to 1, or None, and a short text; None: nothing new. `log_lines`: what
    it logged since it last said something.
    """

    fraction: float | None
    text: str | None
    log_lines: Sequence[LogLine] = ()

    def followed_by(self, newer: ProgressReport) -> ProgressReport:
        """Both in one: the newer progress, and the last lines of both, each once."""
        lines = list(dict.fromkeys((*self.log_lines, *newer.log_lines))) if self.log_lines else newer.log_lines
        progress = self if newer.text is None else newer
        return ProgressReport(progress.fraction, progress.text, last_lines(lines))


TakeProgress = Callable[[], ProgressReport | None]
"""What a job has newly said, once; None: nothing."""


def last_lines(lines: Sequence[LogLine]) -> Sequence[LogLine]:
    """As many of the last as a log keeps."""
    lines = lines[-MAX_LOG_LINES:]
    size = first = 0
    for place in range(len(lines) - 1, -1, -1):
        size += len(lines[place].text.encode())
        if size > MAX_LOG_BYTES:
            first = place + 1
            break
    return lines[first:]


def log_lines_of(text: str, at_ms: int) -> list[LogLine]:
    """The lines of a text, each a millisecond after the one before, cut at what the log takes of one."""
    texts = str(text).splitlines() or [""]
    return [LogLine(_cut(each), at_ms + place) for place, each in enumerate(texts[-MAX_LOG_LINES:])]


def _cut(text: str) -> str:
    return text.encode(errors="replace")[:MAX_LOG_LINE_BYTES].decode(errors="ignore")
