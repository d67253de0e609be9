"""A run of one command that tries to break a promise, and what came of it."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

from tests.proof.counts import Counts
from tests.proof.proofs import Proof
from tests.proof.results import FOLDER, Result, results
from tests.pythons import ROOT
from tests.stores.process import dies_with_us


def run(proof: Proof, *, is_whole: bool = False, folder: Path = FOLDER) -> tuple[Result, Counts]:
    """Runs it to its end, and records that. `is_whole`: for as long as before a release, which may be hours; a variable
    of the environment says another length.

    What a command records by itself counts, unless it failed before it came to that.
    """
    lengths = proof.longer if is_whole else {}
    variables = lengths | {name: os.environ[name] for name in proof.variables if name in os.environ}
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pinlater-proof-") as place:
        report = Path(place) / "report.xml"
        command = [*dies_with_us(), *proof.arguments(), *([f"--junitxml={report}"] if proof.tests else [])]
        before = results(folder).get(proof.name)
        code = subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=False).returncode
        counts = Counts.of(report)
    recorded = results(folder).get(proof.name)
    if recorded is not None and recorded != before and "--record" in proof.module:
        return recorded, counts
    result = Result(
        name=proof.name,
        command=" ".join([*(f"{name}={value}" for name, value in variables.items()), proof.command]),
        outcome="held" if code == 0 else f"broken, or not run to its end (exit code {code})",
        is_right=code == 0,
        seconds=round(time.monotonic() - began_s, 1),
        amounts={name: amount for name, amount in asdict(counts).items() if amount},
    )
    result.record(folder)
    return result, counts
