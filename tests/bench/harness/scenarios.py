"""The cells of the harness's full sweep of May 2026 that break things: five of chaos, four of pressure.

Rates, replicas, workers and phases are those of its scripts/run_full_sweep.sh; `scaled` shortens the phases.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

REPEATED_PERIOD_S = 20
"""Between two kills; it is not shortened, since that would be another fault."""


class Phase(NamedTuple):
    label: str
    kind: str
    seconds: int

    def scaled(self, scale: float) -> str:
        """As the harness's command line wants it."""
        return f"{self.label}={self.kind}:{max(5, round(self.seconds * scale))}s"


@dataclass(frozen=True)
class Cell:
    """One run of the harness for one system. `per_s`: jobs that each replica offers. `before`, `under`, `after`: the
    labels of the phase that counts as undisturbed, of the one that is judged while it lasts, and of the last.
    """

    kind: str
    name: str
    per_s: int
    replicas: int
    workers: int
    phases: tuple[Phase, ...]

    @property
    def before(self) -> str:
        return self.phases[1].label

    @property
    def under(self) -> str:
        return self.phases[2].label

    @property
    def after(self) -> str:
        return self.phases[-1].label

    def seconds(self, scale: float) -> int:
        return sum(int(each.scaled(scale).rpartition(":")[2][:-1]) for each in self.phases)

    def words(self, system: str, scale: float) -> list[str]:
        """Of the harness's command line."""
        numbers = {"producer-rate": self.per_s, "replicas": self.replicas, "worker-count": self.workers}
        words = ["run", "--systems", system, "--skip-build"]
        words += [word for name, value in numbers.items() for word in (f"--{name}", str(value))]
        return words + [word for phase in self.phases for word in ("--phase", phase.scaled(scale))]


def _chaos(name: str, per_s: int, replicas: int, *broken: Phase) -> Cell:
    before = Phase("warmup", "warmup", 30), Phase("baseline", "clean", 60)
    return Cell("chaos", name, per_s, replicas, 32, (*before, *broken, Phase("recovery", "clean", 60)))


def _pressure(name: str, kind: str, seconds: int, after_s: int, per_s: int = 800, workers: int = 32) -> Cell:
    before = Phase("warmup", "warmup", 30), Phase("clean_1", "clean", 60)
    phases = (*before, Phase("pressure_1", kind, seconds), Phase("recovery_1", "clean", after_s))
    return Cell("pressure", name, per_s, 1, workers, phases)


_repeated = f"repeated-kill(instance=0,period={REPEATED_PERIOD_S}s)"
CELLS = (
    _chaos("postgres_restart", 600, 1, Phase("restart", "postgres-restart", 60)),
    _chaos("backend_kill", 600, 1, Phase("kills", "pg-backend-kill(rate=2)", 60)),
    _chaos("pool_exhaustion", 600, 1, Phase("exhaustion", "pool-exhaustion(idle_conns=300)", 60)),
    _chaos(
        "crash_recovery",
        300,
        2,
        Phase("kill", "kill-worker(instance=0)", 60),
        Phase("restart", "start-worker(instance=0)", 60),
    ),
    _chaos("repeated_kills", 300, 2, Phase("repeated", _repeated, 120)),
    _pressure("idle_in_tx", "idle-in-tx", 240, 180),
    _pressure("high_load", "high-load", 240, 120),
    _pressure("active_readers", "active-readers", 240, 120),
    _pressure("burst", "high-load", 300, 240, per_s=1200, workers=64),
)
