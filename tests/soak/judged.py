"""What is judged of a soak at its end, by which bounds, and how it is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.proof.results import Result
from tests.soak.ledger import Latencies
from tests.soak.measures import Lives
from tests.soak.trends import Bound, Sample, Trend, from_life_to_life, over_the_run, within_lives

MEMORY = Bound(
    8.0, 0.06, "an allocator keeps what bursts needed, and caches of pages, plans and sessions fill within minutes"
)
DESCRIPTORS = Bound(8.0, 0.15, "pools of connections grow and shrink with the calls under way")
ROWS = Bound(150.0, 0.3, "what has ended is kept for a while, and the number of jobs in that time varies")
FILES = Bound(40.0, 0.35, "what a killed process leaves is swept later, and the number of bodies varies")
LATENCY = Bound(2_000.0, 20.0, "other programs may take the machine: only what ever grows is found")
STORE = Bound(64.0, 0.5, "a store fills its own caches")


def trends(
    lives: Lives,
    counts: Mapping[str, Sequence[Sample]],
    latencies: Latencies,
    *,
    warm_until_s: float,
    until_s: float,
) -> list[Trend]:
    """Of all that was measured for long enough."""
    found: list[Trend | None] = []
    for role, of_role in lives.memory.items():
        bound = STORE if role.startswith("store ") else MEMORY
        found.append(within_lives(f"memory of each {role}", "MiB", of_role.values(), bound))
        found.append(from_life_to_life(f"memory of a young {role}", "MiB", of_role.values(), bound))
    for role, of_role in lives.descriptors.items():
        found.append(within_lives(f"descriptors of each {role}", "", of_role.values(), DESCRIPTORS))
    for name, samples in counts.items():
        during = [each for each in samples if each.at_s <= until_s]
        bound, unit = (ROWS, "") if name.startswith("rows") else (FILES, "")
        found.append(over_the_run(name, unit, during, warm_until_s, bound))
    for name, kinds in {"middle": latencies.middle, "slowest hundredth": latencies.slowest}.items():
        for kind, samples in kinds.items():
            during = [each for each in samples if each.at_s <= until_s]
            found.append(over_the_run(f"{name} of {kind}", "ms", during, warm_until_s, LATENCY))
    return [each for each in found if each is not None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """`faults`: each a sentence. `amounts`: what was done. `calls`: of the histories. `notes`: for who reads on."""

    seconds: float
    faults: Sequence[str]
    trends: Sequence[Trend]
    amounts: Mapping[str, int]
    calls: int
    notes: Sequence[str] = field(default_factory=list)

    @property
    def grown(self) -> list[Trend]:
        return [each for each in self.trends if not each.is_flat]

    @property
    def is_right(self) -> bool:
        return not self.faults and not self.grown

    def sentence(self) -> str:
        if self.is_right:
            return f"Nothing was lost, one order explains all answers, and {len(self.trends)} measures stayed flat."
        return "; ".join([*self.faults, *(each.line() for each in self.grown)])[:4_000]

    def lines(self) -> Iterator[str]:
        """For people."""
        yield from self.notes
        yield from (f"  {each.line()}" for each in self.trends)
        yield from (f"FAULT {each}" for each in self.faults)
        yield from (f"GREW {each.line()}" for each in self.grown)
        amounts = ", ".join(f"{count:,} {what}" for what, count in self.amounts.items())
        yield f"{'RIGHT' if self.is_right else 'WRONG'} after {self.seconds / 60:.1f} minutes: {amounts}"

    def result(self, command: str, load: str, commit: str) -> Result:
        return Result(
            name="soak",
            command=command,
            amounts={"minutes": round(self.seconds / 60, 1), **self.amounts, "calls judged": self.calls},
            outcome=self.sentence(),
            is_right=self.is_right,
            seconds=round(self.seconds),
            load=load,
            commit=commit,
        )
