"""What a fault is, and the judge of one execution.

An input may be taken, or refused by the errors that its target documents. Anything else is a fault, and so is an
execution that takes more processor time or memory than its target may take for an input of that size.
"""

from __future__ import annotations

import hashlib
import resource
import time
import traceback
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.fuzz.target import Target
from tests.speed import slower

ROOT = Path(__file__).parents[2]
MOST_CPU_S = 0.5
"""Of one input, of a few kilobytes. The product's usual one takes a thousandth; code that counts its coverage is three
to five times as slow as it is."""

MOST_BYTES = 32 * 1024 * 1024
"""Of memory at the peak of one input."""

_TRIES = 3
_MOST_DEAR = 3
"""Executions of what takes long or much, to make it shorter."""

SLOW, LARGE = "slow", "large"


class FaultFound(Exception):
    """Raised by a target that sees a fault which raised nothing: an answer that is none, two readers that disagree."""


@dataclass(frozen=True)
class Fault:
    """`kind` is the same for two inputs that break the same place."""

    target: str
    kind: str
    text: str
    data: bytes

    @property
    def file_name(self) -> str:
        return hashlib.sha256(self.data).hexdigest()[:16]


def place_of(error: BaseException) -> str:
    """Where in the product it was raised, or else in these tests: `file:function`."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if Path(each.filename).is_relative_to(ROOT)]
    product = [each for each in ours if "/tests/" not in each.filename]
    found = (product or ours or frames)[-1]
    path = Path(found.filename)
    return f"{path.relative_to(ROOT) if path.is_relative_to(ROOT) else path.name}:{found.name}"


class Judge:
    """Runs inputs through one target. `executions`: how many."""

    def __init__(self, target: Target, run: Callable[[bytes], object]) -> None:
        self._target = target
        self._run = run
        self._most_cpu_s = MOST_CPU_S
        self.executions = 0
        self.refused = 0
        with suppress(OSError):  # from here on: the peak may be of something else that this process did before
            Path("/proc/self/clear_refs").write_text("5")

    def fault(self, data: bytes) -> Fault | None:
        """What is wrong with this execution; None where nothing is."""
        self.executions += 1
        peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        began_s = time.process_time()
        found = self._raised(data)
        if found is not None:
            return found
        if time.process_time() - began_s > self._most_cpu_s:
            found = self._slow(data)
        elif (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak_kib) * 1024 > MOST_BYTES:
            found = self._large(data)
        return found

    def _raised(self, data: bytes) -> Fault | None:
        try:
            self._run(data)
        except self._target.refusals:
            self.refused += 1
        except FaultFound as error:
            cause = error.__cause__
            at = f" at {place_of(cause)}" if cause is not None else ""
            return self._of(f"{str(error).partition(':')[0]}{at}", error, data)
        except Exception as error:
            return self._of(f"{type(error).__name__} at {place_of(error)}", error, data)
        return None

    def _slow(self, data: bytes) -> Fault | None:
        """The first execution may have imported something, and a machine may be busy: the quickest of some counts."""
        most_s, spent_s = MOST_CPU_S * slower(), []
        for _ in range(_TRIES):
            began_s = time.process_time()
            self._raised(data)
            spent_s.append(time.process_time() - began_s)
            if spent_s[-1] <= most_s:
                return None
        text = f"{min(spent_s):.2f} s of processor time for {len(data)} bytes; allowed: {most_s:.2f} s"
        return Fault(self._target.name, SLOW, text, data)

    def _large(self, data: bytes) -> Fault | None:
        """The process may have grown by what it keeps of many inputs: what this one takes is measured by itself."""
        tracemalloc.start()
        try:
            self._raised(data)
            peak = tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
        if peak <= MOST_BYTES:
            return None
        text = f"{peak:,} bytes of memory for {len(data)} bytes; allowed: {MOST_BYTES:,}"
        return Fault(self._target.name, LARGE, text, data)

    def _of(self, kind: str, error: Exception, data: bytes) -> Fault:
        return Fault(self._target.name, kind, "".join(traceback.format_exception(error)), data)


def shrunk(judge: Judge, fault: Fault, most: int = 500) -> Fault:
    """The same fault by the shortest input that so many executions find: pieces are cut out as long as it stays."""
    best, left = fault, most if fault.kind not in (SLOW, LARGE) else _MOST_DEAR
    size = max(1, len(fault.data) // 2)
    while size and left:
        at = 0
        while at < len(best.data) and left:
            left -= 1
            found = judge.fault(best.data[:at] + best.data[at + size :])
            if found is not None and found.kind == fault.kind:
                best = found
            else:
                at += size
        size //= 2
    return best
