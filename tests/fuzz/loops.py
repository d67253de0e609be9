"""The two loops over one target: one that sees the coverage, and one by chance alone.

    guided    atheris counts which branches of the product an input takes, and libFuzzer keeps the inputs that take
              another one, and changes these further; in a process of its own, as its end is the end of its process
    plain     inputs that are changed again and again, in this process, on every Python: what CI runs

Both change inputs by their structure (Target.change), judge each by faults.Judge, and go on behind a fault: each kind
of it is shrunk, kept as a file and told once.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from random import Random
from typing import Any

from tests.fuzz.faults import ROOT, Fault, Judge, shrunk
from tests.fuzz.target import Target

KEPT = 2_000
"""Inputs that the plain loop changes further, besides the seeds: the last ones that were taken."""

_STATUS = re.compile(r"#(\d+)\s+\w+.*? cov: (\d+) ft: (\d+) corp: (\d+)/\S+.*?exec/s: (\d+)")
_HUNG_S = 60


@dataclass
class Tally:
    """What came of one target so far. `coverage`: branches; 0 where nobody counts them."""

    target: str
    executions: int = 0
    per_second: int = 0
    coverage: int = 0
    corpus: int = 0
    faults: list[Fault] = field(default_factory=list)
    seconds: float = 0.0

    def line(self) -> str:
        covered = f", {self.coverage:,} branches, a corpus of {self.corpus:,}" if self.coverage else ""
        kinds = "; ".join(each.kind for each in self.faults)
        return (
            f"{self.target}: {self.executions:,} executions, {self.per_second:,} a second{covered}, "
            f"{len(self.faults)} kinds of fault{kinds and f': {kinds}'}"
        )


class Watch:
    """Judges inputs, and keeps one fault of each kind. `keep` is called with each new one, once it is shrunk."""

    def __init__(self, target: Target, keep: Callable[[Fault], object]) -> None:
        self._target = target
        self._keep = keep
        self._stack = ExitStack()
        self._open()
        self._known: set[str] = set()

    def _open(self) -> None:
        self._stack.close()
        before = self.judge.executions if hasattr(self, "judge") else 0
        self.judge = Judge(self._target, self._stack.enter_context(self._target.open()))
        self.judge.executions = before

    def close(self) -> None:
        self._stack.close()

    def look(self, data: bytes) -> bool:
        """Whether this input was taken or refused, and no fault."""
        judge, every = self.judge, self._target.renewed_after
        if every and judge.executions % every == every - 1:
            self._open()
        fault = self.judge.fault(data)
        if fault is None:
            return True
        if fault.kind not in self._known:
            self._known.add(fault.kind)
            self._keep(shrunk(self.judge, fault))
        return False

    def look_quietly(self, data: bytes) -> None:
        """As libFuzzer calls it."""
        self.look(data)


def plain(
    target: Target,
    executions: int,
    seed: int,
    told: Callable[[Tally], object] = lambda tally: None,
    seconds: float = 0,
    until: str = "",
) -> Tally:
    """So many executions, or as many as so many seconds have, or until a kind of fault with these words is found. The
    same seed makes the same inputs.
    """
    tally = Tally(target.name)
    watch = Watch(target, tally.faults.append)
    began_s = time.monotonic()
    try:
        for data in _by_chance(target, seed, watch):
            tally.executions += 1
            tally.seconds = time.monotonic() - began_s
            if tally.executions >= executions > 0 or tally.seconds > seconds > 0:
                break
            if tally.executions % 1_000 == 0:
                tally.per_second = round(tally.executions / max(tally.seconds, 0.001))
                told(tally)
            if not watch.look(data) and until and until in tally.faults[-1].kind:
                break
    finally:
        watch.close()
    return tally


def _by_chance(target: Target, seed: int, watch: Watch) -> Iterator[bytes]:
    dice = Random(f"{target.name} {seed}")
    seeds = list(target.seeds())
    yield from seeds
    kept: list[bytes] = []
    while True:
        data = dice.choice(kept) if kept and dice.random() < 0.5 else dice.choice(seeds)
        for _ in range(dice.choice((1, 1, 2, 4))):
            data = target.change(data, dice)[: target.most_bytes]
        refused = watch.judge.refused
        yield data
        if watch.judge.refused == refused:  # it was taken: what becomes of it goes deeper
            kept.append(data)
            if len(kept) > KEPT:
                del kept[dice.randrange(KEPT)]


def can_be_guided() -> bool:
    """Whether atheris is installed. It has wheels for Linux on x86-64, for Python up to 3.13."""
    return find_spec("atheris") is not None


def guided(
    target: Target,
    seed: int,
    told: Callable[[Tally], object],
    *,
    seconds: int = 0,
    executions: int = 0,
    corpus: Path | None = None,
    planted: str = "",
) -> Tally:
    """So many seconds or executions in a process that counts branches. `corpus`: a folder of inputs that are of use,
    which is added to; None: one that is gone afterwards. `planted`: the name of a fault that is planted there.
    """
    tally = Tally(target.name)
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="pinlater-fuzz-") as folder:
        found, place = Path(folder) / "found", corpus or Path(folder) / "corpus"
        found.mkdir()
        place.mkdir(parents=True, exist_ok=True)
        _write_seeds(target, place)
        command = [sys.executable, "-m", "tests.fuzz.guided_process", target.name, str(found), planted or "-"]
        bounds = [f"-seed={seed % 2**31 or 1}", f"-max_len={target.most_bytes}", f"-timeout={_HUNG_S}"]
        bounds += [f"-max_total_time={seconds}"] if seconds else []
        bounds += [f"-runs={executions}"] if executions else []
        bounds += ["-rss_limit_mb=4096", f"-artifact_prefix={found}/", *_dictionary(target, Path(folder)), str(place)]
        process = subprocess.Popen([*command, *bounds], cwd=ROOT, stderr=subprocess.PIPE, text=True, env=_environment())
        assert process.stderr is not None
        last: list[str] = []
        with process:
            for line in process.stderr:
                last = [*last[-30:], line]
                if (status := _STATUS.match(line)) is not None:
                    numbers = [int(each) for each in status.groups()]
                    tally.executions, tally.coverage, _, tally.corpus, tally.per_second = numbers
                    tally.faults = _faults_in(target, found)
                    told(tally)
        tally.faults = _faults_in(target, found)
        if process.returncode != 0 and not tally.faults:
            tally.faults.append(Fault(target.name, "the process died", "".join(last), b""))
    tally.seconds = time.monotonic() - began_s
    tally.per_second = round(tally.executions / max(tally.seconds, 0.001))
    return tally


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(each for each in sys.path if each)}


def _write_seeds(target: Target, place: Path) -> None:
    for number, data in enumerate(target.seeds()):
        (place / f"seed-{number:04}").write_bytes(data[: target.most_bytes])


def _dictionary(target: Target, folder: Path) -> list[str]:
    if not target.words:
        return []
    path = folder / "words"
    escaped = ["".join(rf"\x{byte:02x}" for byte in word) for word in target.words]
    path.write_text("".join(f'"{each}"\n' for each in escaped), encoding="ascii")
    return [f"-dict={path}"]


def _faults_in(target: Target, found: Path) -> list[Fault]:
    """Those that the process wrote, and the inputs at which it hung, died or ran out of memory."""
    faults = []
    for path in sorted(found.iterdir()):
        if path.suffix == ".json":
            kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            faults.append(Fault(target.name, kept["kind"], kept["text"], path.with_suffix(".input").read_bytes()))
        elif path.suffix != ".input":
            faults.append(Fault(target.name, path.name.partition("-")[0], "the process ended at it", path.read_bytes()))
    return faults


def keep_in(folder: Path) -> Callable[[Fault], None]:
    """Writes faults into a folder, for `_faults_in`."""

    def keep(fault: Fault) -> None:
        path = folder / f"{fault.file_name}.json"
        path.with_suffix(".input").write_bytes(fault.data)
        path.write_text(json.dumps({"kind": fault.kind, "text": fault.text}), encoding="utf-8")

    return keep
