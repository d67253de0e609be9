"""A run of a test as a history: what all its callers asked and were answered, judged at its end.

The checker holds every answer to docs/semantics.md: what was stored is not lost and ends, nothing is handed out early,
twice within a claim or after its end, and what lookups show is where the calls before have led to.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pinlater.client.async_client import AsyncClient
from pinlater.history.call_events import CallBegin, CallEnd, Event, Note
from pinlater.history.checker import check
from pinlater.history.checker.verdict import Verdict
from pinlater.history.history_files import files_in, merged_history
from pinlater.history.history_folder import folder_recorder
from pinlater.history.job_parts import JobPart, job_parts
from pinlater.history.open_jobs import open_jobs
from pinlater.history.recorder import Recorder, event_line, header
from pinlater.model import RequestContext
from pinlater.wire.codec import Reply
from pinlater.wire.convert import call_args
from pinlater.wire.faults import error_from_exception
from tests.server.running import Plain

_JOBS_A_LOOKUP = 1_000
TOLERANCE_MS = 1.0
"""All run on one machine, by one clock, of which servers know whole milliseconds."""


def now_ms() -> float:
    """By the clock of histories."""
    return time.time_ns() / 1_000_000


class RecordedRun:
    """`folder` is for clients, too: AsyncClient(history=run.folder). `notes`: what no caller could see."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "history"
        self.recorder = folder_recorder(self.folder)
        self.notes: list[Note] = []
        self._callers = itertools.count(1)

    async def plain(self, port: int, name: str = "caller") -> RecordedPlain:
        """A connection with a caller of its own."""
        plain = RecordedPlain(*await asyncio.open_connection("127.0.0.1", port))
        plain.recorder, plain.context = self.recorder, RequestContext(f"{name}-{next(self._callers)}")
        return plain

    def events(self) -> Iterator[Event]:
        """All that was recorded until now, by every process."""
        return merged_history(files_in([self.folder]))

    def parts(self) -> Iterator[tuple[float, JobPart]]:
        """What calls were to single jobs, with the time of the answer."""
        begins: dict[int, CallBegin] = {}
        for event in self.events():
            if isinstance(event, CallBegin):
                begins[event.call] = event
            elif isinstance(event, CallEnd):
                yield from ((event.at_ms, part) for part in job_parts(begins.pop(event.call), event))

    def jobs(self) -> set[str]:
        """All that were stored or handed out."""
        return {part.job for _, part in self.parts() if part.action in ("enqueue", "claim")}

    def open_jobs(self) -> list[str]:
        """Those whose ends nobody has seen so far."""
        return open_jobs(self.events())

    async def look_up(self, client: AsyncClient) -> None:
        """What became of jobs whose ends nobody has seen."""
        names = self.open_jobs()
        for start in range(0, len(names), _JOBS_A_LOOKUP):
            await client.lookup(names[start : start + _JOBS_A_LOOKUP])

    def judge(self, *, tolerance_ms: float = TOLERANCE_MS, is_over: bool = True) -> Verdict:
        """Fails with the calls that contradict each other. `is_over`: all is drained and was looked up."""
        verdict = self.verdict(tolerance_ms=tolerance_ms, is_over=is_over)
        text = "\n".join(verdict.lines())
        print(text)
        assert verdict.is_explained, text
        return verdict

    def verdict(self, *, tolerance_ms: float = TOLERANCE_MS, is_over: bool = True) -> Verdict:
        """What the checker says of it."""
        ends = [Note("end", now_ms())] if is_over else []
        notes = sorted([*self.notes, *ends], key=lambda note: note.at_ms)
        lines = [header(0), *map(event_line, notes)]
        (self.folder / "notes.jsonl").write_bytes(b"".join(lines))
        return check(self.events(), tolerance_ms=tolerance_ms, has_one_clock=True)


class RecordedPlain(Plain):
    """Records its calls; what it awaits when its connection breaks may have been carried out."""

    recorder: Recorder
    context: RequestContext

    async def reply(self, method: str, **arguments: Any) -> Reply:
        """The success or the exception. OSError, asyncio.IncompleteReadError: the connection broke."""
        number = self.recorder.begin(method, call_args(method, self.context, **arguments))
        try:
            await self.send(method, context=self.context, **arguments)
            reply = await self.answer()
        except BaseException as error:
            self.recorder.fail(number, error)
            raise
        if reply.exception is not None:
            self.recorder.fail(number, error_from_exception(reply.exception))
        else:
            self.recorder.end(number, method, reply.success)
        return reply

    async def call(self, method: str, **arguments: Any) -> Any:
        reply = await self.reply(method, **arguments)
        assert reply.exception is None, reply.exception
        return reply.success
