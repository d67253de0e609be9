"""Jobs that come and go while the power is cut, and whether what was answered is there afterwards."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from pinlater import AsyncClient, JobState, PinLaterError
from pinlater.history.call_events import Note
from pinlater.model import JobFilter
from pinlater.wire.methods import LOOKUP
from tests.faults.load import BROKEN, QUEUE, Load
from tests.faults.recorded_run import RecordedRun
from tests.faults.test_kills import CLAIM_TIMEOUT_MS, STUCK_AFTER_S, drain, when_it_serves
from tests.powercuts.machine import Cut, Machine

JOBS_A_LOOKUP = JOBS_A_TAKE = 1_000
CUTS_A_HISTORY = 10
"""After so many, all jobs are brought to their ends, and all that was asked and answered is judged together."""

KEPT = os.environ.get("PINLATER_POWER_KEEP", "")
"""The new folder in which the disk of a cut is left that was not survived."""


@dataclass(frozen=True)
class Workload:
    """`loss_ms`: how much of the last that was answered may be gone after a cut, by docs/stores.md. `serving_s`: how
    long it serves before one, `pause_s`: how long each caller rests between its calls. `is_explained_by_history`: False
    where the history alone cannot say where jobs are.
    """

    loss_ms: float = 0.0
    serving_s: tuple[float, float] = (0.05, 0.7)
    body_bytes: int = 200
    callers: int = 16
    pause_s: float = 0.0
    is_explained_by_history: bool = True


@dataclass
class Promised:
    """What was answered, by the times of the answers in milliseconds since 1970."""

    stored: dict[str, float] = field(default_factory=dict)
    succeeded: dict[str, float] = field(default_factory=dict)

    def broken(self, found: dict[str, str]) -> Promised:
        """What of that does not hold, by the states that a lookup has found."""
        return Promised(
            {job: at_ms for job, at_ms in self.stored.items() if job not in found},
            {job: at_ms for job, at_ms in self.succeeded.items() if found.get(job) != "SUCCEEDED"},
        )

    def before(self, until_ms: float) -> Promised:
        """What was answered before that moment."""
        return Promised(*({job: at for job, at in each.items() if at < until_ms} for each in self))

    def without(self, other: Promised) -> Promised:
        return Promised(
            {job: at_ms for job, at_ms in self.stored.items() if job not in other.stored},
            {job: at_ms for job, at_ms in self.succeeded.items() if job not in other.succeeded},
        )

    def __iter__(self) -> Iterator[dict[str, float]]:
        yield from (self.stored, self.succeeded)

    def __len__(self) -> int:
        return len(self.stored) + len(self.succeeded)


def promised(run: RecordedRun) -> Promised:
    answers = Promised()
    for at_ms, part in run.parts():
        if part.action == "enqueue":
            answers.stored[part.job] = at_ms
        elif part.action == "success" and part.outcome == "SUCCEEDED":
            answers.succeeded[part.job] = at_ms
    return answers


async def states(port: int, run: RecordedRun, jobs: Iterable[str], body_bytes: int) -> dict[str, str]:
    """Of those that are there, with their bodies. A store that is slow, or out for a while, is waited for."""
    names = list(jobs)
    async with asyncio.timeout(STUCK_AFTER_S):
        while True:
            plain, found = await when_it_serves(port, run), dict[str, str]()
            with suppress(*BROKEN):
                for start in range(0, len(names), JOBS_A_LOOKUP):
                    request = LOOKUP.request(names[start : start + JOBS_A_LOOKUP], True)
                    answer = LOOKUP.result(await plain.call("lookupJobs", request=request))
                    whole = {name: info for name, info in answer.items() if len(info.body or b"") == body_bytes}
                    found |= {name: info.state.name for name, info in whole.items()}
                await plain.close()
                return found
            await plain.close()


class JobsUnderCuts:
    """Judges the promises after each cut, and the whole history after some of them. Fails with the cuts' seeds."""

    def __init__(self, machine: Machine, folder: Path, workload: Workload, seed: int) -> None:
        self._machine = machine
        self._folder = folder
        self._workload = workload
        self._random = random.Random(seed)
        self._run = RecordedRun(folder)
        self.cuts: list[Cut] = []
        self.answered = 0
        self._gone = Promised()
        """Answers of the last moments before the cuts, which might be gone, and are."""

    async def survives(self, cuts: int) -> None:
        for number in range(cuts):
            if number % CUTS_A_HISTORY == 0:
                self._run = RecordedRun(self._folder / f"from-{number}")
            await self.is_cut()
            if (number + 1) % CUTS_A_HISTORY == 0 or number + 1 == cuts:
                await self.is_over()
        held = sum(cut.held["pages"] for cut in self.cuts)
        changes = sum(cut.held["changes"] for cut in self.cuts)
        lost = f", {len(self._gone)} answers of the last moments gone" if self._workload.loss_ms else ""
        print(f"{cuts} cuts, {self.answered} answers{lost}; {held} pages and {changes} changes of names held back")

    async def is_cut(self) -> None:
        """Serves for a while, under load, and is cut; then all that was promised is there."""
        work, seed = self._workload, self._random.randrange(1 << 32)
        await self.prepare()
        load = Load(
            self._machine.port,
            self._run,
            CLAIM_TIMEOUT_MS,
            producers=work.callers,
            workers=work.callers,
            seed=seed,
            body_bytes=work.body_bytes,
            pause_s=work.pause_s,
        )
        load.start()
        try:
            await load.grows_by(20)
            await asyncio.sleep(self._random.uniform(*work.serving_s))
            cut = await self._machine.cut(seed)
        finally:
            await load.stop()
        self.cuts.append(cut)
        self.answered += load.calls
        if work.loss_ms:
            self._run.notes.append(Note("rollback", cut.at_ms, "1", cut.at_ms - work.loss_ms))
        answers = promised(self._run)
        try:
            await self.restarts()
            found = await states(self._machine.port, self._run, answers.stored | answers.succeeded, work.body_bytes)
        except (RuntimeError, TimeoutError) as error:
            if KEPT:
                await asyncio.to_thread(shutil.copytree, self._machine.disk.folder, KEPT)
            said = f"{error} {self._machine.what_was_said()}"
            raise AssertionError(f"{cut}: it does not serve again: {said}") from error
        broken = answers.broken(found).without(self._gone)
        self._judge(cut, broken.before(cut.at_ms - work.loss_ms) if work.loss_ms else broken)
        self._gone.stored |= broken.stored
        self._gone.succeeded |= broken.succeeded

    def _judge(self, cut: Cut, broken: Promised) -> None:
        lost = [f"{job} was accepted {cut.at_ms - at_ms:.0f} ms before" for job, at_ms in broken.stored.items()]
        again = [f"{job} was acked {cut.at_ms - at_ms:.0f} ms before" for job, at_ms in broken.succeeded.items()]
        assert not broken, f"{cut}: {len(lost)} jobs are lost, {len(again)} come again: {lost[:5]} {again[:5]}"

    async def serves(self) -> None:
        """Waits until it answers."""
        await (await when_it_serves(self._machine.port, self._run)).close()

    async def prepare(self) -> None:
        """Before the load comes."""
        await self.serves()

    async def restarts(self) -> None:
        await asyncio.to_thread(self._machine.start)

    async def is_over(self) -> None:
        """Every job comes to its end, and one order explains all that was answered."""
        cuts = "; ".join(map(str, self.cuts[-CUTS_A_HISTORY:]))
        left = await drain(self._machine.port, self._run, JOBS_A_TAKE, self._may_be_gone)
        assert left == [], f"{cuts}: {left[:5]}"
        if self._workload.is_explained_by_history:
            try:
                self._run.judge()
            except AssertionError as error:
                raise AssertionError(f"{cuts}: {error}") from error
        await self._delete_ended()

    async def _delete_ended(self) -> None:
        """What was judged would only make later starts longer."""
        async with AsyncClient(f"127.0.0.1:{self._machine.port}") as client:
            with suppress(PinLaterError):
                for state in (JobState.SUCCEEDED, JobState.FAILED):
                    while await client.delete_jobs(JobFilter(QUEUE, state), limit=JOBS_A_TAKE):
                        pass

    def _may_be_gone(self, job: str) -> bool:
        return self._workload.loss_ms > 0 and job.endswith("not there")
