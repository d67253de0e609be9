"""The run before a release: the whole suite, soaks, a large simulation, other versions of stores and of Python.

`scripts/test --release` runs it; at its end the table in docs/testing.md says what came of each part.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from tests.proof.counts import Counts
from tests.proof.page import PAGE as PROOF_PAGE
from tests.proof.page import page
from tests.proof.proofs import PROOFS, Proof
from tests.proof.results import commit, results
from tests.proof.run import run
from tests.pythons import EXTRAS, NOT_FOUND, ROOT, VERSIONS, environment_of, python_of
from tests.stores.engines import ENGINES, POOLED, Engine

PAGE = ROOT / "docs" / "testing.md"
BEGIN, END = "<!-- the last release run -->", "<!-- end of the last release run -->"
SIMULATED = ["--servers", "100", "--shards", "200", "--seed", "1", "--scenario", "all"]


@dataclass(frozen=True)
class Outcome:
    """What came of a part, or why it was not run."""

    part: str
    result: str
    counts: Counts = field(default_factory=Counts)
    minutes: float = 0.0

    @property
    def is_right(self) -> bool:
        return self.result == "passed" or self.result.startswith("not run")

    def row(self) -> str:
        counted = (self.counts.items, self.counts.failed, self.counts.skipped)
        numbers = [f"{number:,}" if self.counts.items else "" for number in counted]
        return f"| {' | '.join([self.part, *numbers, f'{self.minutes:.0f}', self.result])} |"


@dataclass(frozen=True)
class Part:
    """One command of the run."""

    name: str
    command: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)

    def run(self, folder: Path) -> Outcome:
        report = folder / "report.xml"
        report.unlink(missing_ok=True)
        command = [*self.command, f"--junitxml={report}"] if "pytest" in self.command else [*self.command]
        print(f"\n{self.name}: {' '.join(command)}", flush=True)
        began_s = time.monotonic()
        code = subprocess.run(command, cwd=ROOT, env=os.environ | self.variables, check=False).returncode
        minutes = (time.monotonic() - began_s) / 60
        return Outcome(self.name, "passed" if code == 0 else f"FAILED (exit {code})", Counts.of(report), minutes)


def pytest_on(python: str, *arguments: str) -> list[str]:
    return [python, "-m", "pytest", "-q", *arguments]


def parts() -> list[Part]:
    """Those that run on the Python of `.venv`."""
    return [
        Part("all tests, on all seven bindings", pytest_on(sys.executable, "-n", "3", "--release")),
        Part("the files of a release, tried without an index", ["./scripts/release", "--trial"]),
        Part("100 servers over 200 shards, simulated", [sys.executable, "-m", "tests.simulation", *SIMULATED]),
        Part("conformance on PostgreSQL behind PgBouncer", conformance_of("postgres"), {POOLED: "1"}),
    ]


def outcome_of(proof: Proof) -> Outcome:
    """Of a command that tries to break a promise, for as long as that takes; it stands in docs/proof.md then."""
    result, counts = run(proof, is_whole=True)
    return Outcome(f"{proof.name} of docs/proof.md", passed(result.is_right), counts, result.seconds / 60)


def passed(is_right: bool) -> str:
    return "passed" if is_right else "FAILED"


def conformance_of(store: str) -> list[str]:
    """The suite on one store as CI runs it, which is bare but for Redis."""
    return pytest_on(sys.executable, "-n", "2", "tests/conformance", "-k", store)


def on_engine(engine: Engine, folder: Path) -> Outcome:
    """The conformance suite on another version of a store."""
    part = f"conformance on {engine.name}"
    if not engine.folder.is_dir():
        return Outcome(part, "not run: ./scripts/services --versions fetches it")
    return Part(part, conformance_of(engine.store), engine.variables).run(folder)


def on_other_python(version: str, named: Sequence[str], folder: Path) -> Outcome:
    """The whole suite as CI runs it, on another Python, in an environment of its own inside `.venv`."""
    part = f"the tests of CI on Python {version}"
    python = python_of(version, named)
    if python is None:
        return Outcome(part, f"{NOT_FOUND}; --python PATH names one")
    inside = environment_of(version, python, f"{EXTRAS},mysqldb")
    if inside is None:
        return Outcome(part, "FAILED (its packages could not be installed)")
    path = f"{inside.parent}{os.pathsep}{os.environ['PATH']}"
    return Part(part, pytest_on(str(inside), "-n", "3"), {"PATH": path}).run(folder)


def table(outcomes: Sequence[Outcome], commit: str, day: str) -> str:
    """What docs/testing.md says of the last run."""
    head = ["| part | items | failed | skipped | minutes | result |", "| --- | --- | --- | --- | --- | --- |"]
    return "\n".join([f"{day}, commit `{commit}`:", "", *head, *(outcome.row() for outcome in outcomes)])


def page_with(page: str, text: str) -> str:
    """The page with this text between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{text}\n{END}{after}"


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/test --release", description=__doc__)
    parser.add_argument("--python", action="append", default=[], metavar="PATH", help="another Python; repeatable")
    options = parser.parse_args()
    ours = f"{sys.version_info.major}.{sys.version_info.minor}"
    with tempfile.TemporaryDirectory(prefix="pinlater-release-") as folder:
        outcomes = [part.run(Path(folder)) for part in parts()]
        outcomes += [outcome_of(proof) for proof in PROOFS.values() if proof.is_longer and not proof.lacks]
        outcomes += [on_engine(engine, Path(folder)) for engine in ENGINES]
        others = [version for version in VERSIONS if version != ours]
        outcomes += [on_other_python(version, options.python, Path(folder)) for version in others]
    PROOF_PAGE.write_text(page(results()), encoding="utf-8")
    text = table(outcomes, commit(), f"{datetime.now(UTC):%Y-%m-%d}")
    PAGE.write_text(page_with(PAGE.read_text(encoding="utf-8"), text), encoding="utf-8")
    print(f"\n{text}\n\nThis stands in docs/testing.md now.")
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


if __name__ == "__main__":
    raise SystemExit(main())
