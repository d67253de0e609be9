"""One run of the harness: its command, its store, and what it wrote."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.harness import docker
from tests.bench.harness.registered import ROOT, SYSTEM
from tests.bench.harness.scenarios import Cell
from tests.stores.process import dies_with_us

PACKAGES = ("psycopg[binary]>=3.2", "matplotlib>=3.9", "pandas>=2.2", "numpy>=2.0", "pydantic>=2")
"""What the harness needs, as its pyproject.toml says."""
GRACE_S = 300.0
"""For starts, the stop and the report, over the phases; the authors' sweep ends a run after 15 minutes too."""
LEDGER = "HARNESS_LEDGER"


class Harness(NamedTuple):
    """A checkout of the harness, and the folder where its packages, adapters and stores are."""

    checkout: Path
    folder: Path

    def python(self) -> str:
        """The one that has its packages, made where it is lacking."""
        venv = self.folder / "harness"
        if not (venv / "done").exists():
            subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
            subprocess.run([str(venv / "bin/pip"), "install", "--quiet", *PACKAGES], check=True)
            (venv / "done").touch()
        return str(venv / "bin/python")

    def variables(self) -> dict[str, str]:
        return {docker.CHECKOUT: str(self.checkout), docker.STATE: str(self.folder)}

    @contextmanager
    def ready(self) -> Iterator[None]:
        """`docker` is the stand-in, for this process too; the store's data are gone afterwards."""
        programs = self.folder / "programs"
        programs.mkdir(parents=True, exist_ok=True)
        stand_in = programs / "docker"
        stand_in.write_text(
            f'#!/bin/sh\nPYTHONPATH={ROOT} exec {shlex.quote(sys.executable)} -P -m {docker.__name__} "$@"\n'
        )
        stand_in.chmod(0o755)
        os.environ.update(self.variables(), PATH=f"{programs}{os.pathsep}{os.environ['PATH']}")
        try:
            yield
        finally:
            docker.down()

    def commit(self) -> str:
        words = ["git", "-C", str(self.checkout), "rev-parse", "--short=12", "HEAD"]
        return subprocess.run(words, capture_output=True, text=True, check=False).stdout.strip()


class Run(NamedTuple):
    """What came of a run. `ended`: with what; None: it had to be killed. `phases`: those of the harness's summary."""

    ended: int | None
    phases: Mapping[str, Any]
    rows: list[dict[str, str]]
    log: str

    def rate(self, phase: str) -> float:
        """Jobs done per second, the median of the phase; 0 where there was no sample."""
        return float(self._metric(phase, "completion_rate", "median"))

    def wait_ms(self, phase: str, quantile: str = "p99") -> float:
        """Until a job began, the median of the samples."""
        return float(self._metric(phase, f"claim_{quantile}_ms", "median"))

    def dead_rows(self, phase: str) -> float:
        """Of all tables that the system named, at most."""
        return float(self.phases.get(phase, {}).get("peak_dead_tup") or 0)

    def megabytes(self, phase: str) -> float:
        """Of the tables that the system named, with their indexes, as they were last seen in the phase."""
        last = {
            row["subject"]: float(row["value"])
            for row in self.rows
            if row["phase_label"] == phase and row["metric"] == "total_relation_size_mb"
        }
        return sum(last.values())

    def _metric(self, phase: str, metric: str, what: str) -> float:
        return self.phases.get(phase, {}).get("metrics", {}).get(metric, {}).get(what) or 0.0


def run(harness: Harness, cell: Cell, system: str, scale: float, log: Path, ledger: Path | None = None) -> Run:
    """The store goes on behind it, with what it has."""
    docker.down()
    command = [harness.python(), str(ROOT / "tests/bench/harness/registered.py")]
    command += ["--checkout", str(harness.checkout), "--python", sys.executable, *cell.words(system, scale)]
    env = {**os.environ, "KEEP_DB": "1", "PRODUCER_BATCH_MAX": "128", **({LEDGER: str(ledger)} if ledger else {})}
    if system != SYSTEM:
        docker.build(f"{system}-bench")
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*dies_with_us(), *command], stdout=output, stderr=output, env=env, start_new_session=True
        )
    ended = None
    try:
        with suppress(subprocess.TimeoutExpired):
            ended = process.wait(cell.seconds(scale) + GRACE_S)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # with the replicas that it has left behind
        process.wait()
    said = log.read_text(errors="replace")
    found = re.search(r"run_id = (\S+)", said)
    return _read(harness.checkout / "results" / found[1], ended, system, said) if found else Run(ended, {}, [], said)


def _read(folder: Path, ended: int | None, system: str, said: str) -> Run:
    summary, raw = folder / "summary.json", folder / "raw.csv"
    systems = json.loads(summary.read_text())["systems"] if summary.exists() else {}
    with raw.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    return Run(ended, systems.get(system, {}).get("phases", {}), rows, said)
