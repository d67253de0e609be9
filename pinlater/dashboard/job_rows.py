"""Jobs as rows of a list: their content, state, and last line of status."""

from __future__ import annotations

from typing import NamedTuple

from pinlater.dashboard.job_timeline import attempt_text
from pinlater.job_body import FIRST_LINE, describe_body
from pinlater.model import JobInfo
from pinlater.model.attempt_counts import counted_attempts, failed_attempts
from pinlater.model.job_selection import JobPhase, phase_of

MAX_CALL_CHARS = 160
MAX_SAID_CHARS = 240
_SHOWN_BYTES = 4 * MAX_CALL_CHARS
_KINDS = {
    JobPhase.SUCCEEDED: "good",
    JobPhase.FAILED: "bad",
    JobPhase.CANCELLED: "held",
    JobPhase.REPLAYED: "held",
    JobPhase.IN_PROGRESS: "run",
}


class JobRow(NamedTuple):
    """`call` is what the job does, where that can be told: `is_call` for a body of the framework. `status_line` is the
    last line of its status that is not of a traceback, "" for who may see no bodies.
    """

    info: JobInfo
    queue: str
    phase: JobPhase
    kind: str
    call: str
    is_call: bool
    status_line: str

    @property
    def descriptor(self) -> str:
        return self.info.descriptor

    @property
    def state(self) -> str:
        return self.phase.word

    @property
    def attempts(self) -> str:
        """How many have failed, of how many."""
        return counted_attempts(failed_attempts(self.info), self.info.attempts_allowed)


def job_row(info: JobInfo, now_ms: int, *, sees_bodies: bool) -> JobRow:
    phase = phase_of(info, now_ms)
    call, is_call = call_text(info, sees_bodies=sees_bodies)
    queue = info.descriptor.partition(":")[0]
    return JobRow(
        info, queue, phase, _KINDS.get(phase, ""), call, is_call, last_line(info.custom_status) if sees_bodies else ""
    )


def call_text(info: JobInfo, *, sees_bodies: bool) -> tuple[str, bool]:
    """In one line, and whether it is a call; "" where the body is not to be seen."""
    if not sees_bodies:
        return "", False
    if info.body is None:
        return ("a large body" if info.body_stored_at is None else "a body in a tier"), False
    call = describe_body(info.body)
    if call is not None:
        return call.call_text(MAX_CALL_CHARS), True
    if not info.body:
        return "no body", False
    begin = info.body[:_SHOWN_BYTES]
    try:
        text = begin.decode("utf-8", "strict" if len(begin) == len(info.body) else "ignore")
    except UnicodeDecodeError:
        return f"{len(info.body):,} bytes", False
    if FIRST_LINE.match(info.body) or "\x00" in text:
        return f"{len(info.body):,} bytes", False
    text = " ".join(text.split())
    return (text if len(text) <= MAX_CALL_CHARS else f"{text[: MAX_CALL_CHARS - 1]}…"), False


def last_line(status: str) -> str:
    """That of the last attempt, without when and where it was; or of whoever wrote last."""
    lines = [line for line in status.splitlines() if line.strip() and not line.startswith("  ")]
    line = attempt_text(lines[-1]) if lines else ""
    return line if len(line) <= MAX_SAID_CHARS else f"{line[: MAX_SAID_CHARS - 1]}…"
