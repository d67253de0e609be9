"""A call that is alone: how long it takes, and the processor time of each process, beside those of redis-py's SET."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from tests.bench.figures import AtMost, Figure, Goal
from tests.bench.lone_caller import WITHOUT_SERVER
from tests.bench.processes import CpuWatch, Program, per_job, served
from tests.bench.run import PERSISTENCE, Run
from tests.server.certificates import Authority
from tests.stores.process import dies_with_us

CALLS = 5_000
MODES = {"sync": "Client", "async": "AsyncClient"}
OF_SET = 2.0
"""The goal: client, server and store take so many times the processor time of redis-py's SET at most."""


class Case(NamedTuple):
    """`what` is one of lone_caller's; `mode` one of MODES."""

    what: str
    mode: str
    is_tls: bool = False

    @property
    def name(self) -> str:
        return f"{self.what}, {self.mode}{', TLS' if self.is_tls else ''}"


CASES = (
    Case("echo", "sync"),
    Case("PING", "sync"),
    *(Case(what, mode) for mode in MODES for what in ("SET", "empty", "enqueue", "dequeue none", "dequeue", "ack")),
    *(Case(what, mode, is_tls=True) for mode in MODES for what in ("empty", "enqueue")),
)


class Times(NamedTuple):
    """Microseconds of a call: by the clock, and of each process."""

    wall: float
    cpu: dict[str, float]


def measure(run: Run) -> Iterator[Figure]:
    found: dict[Case, list[Times]] = {case: [] for case in CASES}
    for number in range(run.sizes.rounds):
        for case, times in found.items():
            times.append(_times(run, case))
            shown = ", ".join(f"{process} {spent:.0f}" for process, spent in times[-1].cpu.items())
            run.say(f"  round {number + 1}, {case.name}: {times[-1].wall:.0f} us; processor time: {shown}")
    for case, times in found.items():
        yield Figure(
            f"lone/{case.name}",
            "us",
            [each.wall for each in times],
            cpu_us=times[-1].cpu,
            persistence=PERSISTENCE["redis"],
            notes=f"one call after the other, bodies of 200 bytes; {_library(case)}",
        )
    for mode, client in MODES.items():
        floors = [sum(each.cpu.values()) for each in found[Case("SET", mode)]]
        spent = [sum(each.cpu.values()) for each in found[Case("enqueue", mode)]]
        goals: list[Goal] = [AtMost(OF_SET)]
        ratios = [one / floor for one, floor in zip(spent, floors, strict=True)]
        notes = f"processor time of an enqueue by {client} with its server and store, over that of redis-py's SET"
        yield Figure(f"lone/over SET, {mode}", "x", ratios, goals, persistence=PERSISTENCE["redis"], notes=notes)


def _library(case: Case) -> str:
    if case.what in ("echo", "PING"):
        return "a blocking socket" + (" and a server on uvloop" if case.what == "echo" else "")
    return f"redis-py, {case.mode}" if case.what == "SET" else MODES[case.mode]


def _times(run: Run, case: Case) -> Times:
    store = run.store("redis")
    store.empty(1)
    with ExitStack() as ending:
        pids = {"redis": store.pid}
        if case.what == "echo":
            address, pids = ending.enter_context(_echo())
        elif case.what in WITHOUT_SERVER:
            address = f"127.0.0.1:{store.port}"
        else:
            options = _tls(ending) if case.is_tls else []
            server = ending.enter_context(served([store.url(1)], 1, options=options))
            address, pids = server.address, {**pids, **server.pids()}
        calls = run.sizes.jobs(CALLS)
        program = Program("lone_caller", server=address, what=case.what, mode=case.mode, calls=calls)
        watch = CpuWatch(pids)
        watch.start()
        program.go()
        done = program.result()
        return Times(done["seconds"] / calls * 1e6, per_job({"client": done["cpu"], **watch.stop()}, calls))


def _tls(ending: ExitStack) -> list[str]:
    """The options of a server; clients trust its certificate until the end."""
    authority = Authority(Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="pinlater-bench-"))))
    cert, key = authority.issue("server", "127.0.0.1", "localhost")
    ending.enter_context(patch.dict("os.environ", PINLATER_TLS_CA=authority.ca))
    return ["--tls-cert", cert, "--tls-key", key]


@contextmanager
def _echo() -> Iterator[tuple[str, dict[str, int]]]:
    command = [*dies_with_us(), sys.executable, "-m", "tests.bench.lone_caller"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"127.0.0.1:{process.stdout.readline().strip()}", {"echo": process.pid}
        process.terminate()
