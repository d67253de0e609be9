"""What is read of a run, and whether a system came through it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tests.bench.harness.ledger import Account
from tests.bench.harness.runs import Run
from tests.bench.harness.scenarios import Cell

BACK = 0.9
"""Of the rate before: so the harness says that a system has recovered."""


@dataclass(frozen=True)
class Verdict:
    """Of one system in one cell.

    Rates are jobs per second, waits the p99 in milliseconds until a job began, all medians of the samples of a phase.
    `estimate`: the jobs that the harness believes lost, from rates (None: it has no idea); `account`: the exact count,
    where the adapter keeps a ledger. `dead`: rows that vacuum has not removed, at most, `megabytes` of tables with
    their indexes at the end of the phase: `before`, `under` and `after` the disturbance.
    """

    kind: str
    name: str
    system: str
    ended: int | None
    rates: Sequence[float]
    waits_ms: Sequence[float]
    dead: Sequence[float]
    megabytes: Sequence[float]
    estimate: float | None
    back_s: float | None
    account: Account | None

    @property
    def share(self) -> float:
        """Of the rate before: after chaos, under pressure."""
        before, under, after = self.rates
        return (after if self.kind == "chaos" else under) / before if before else 0.0

    @property
    def wrong(self) -> str:
        """Why it did not come through; "": it did."""
        if self.ended != 0:
            return "it did not end in time" if self.ended is None else "its process ended"
        if self.account and self.account.not_run:
            return f"{self.account.not_run} jobs were lost"
        if self.share < BACK:
            return f"{self.share:.0%} of the rate before"
        return ""


def judged(run: Run, cell: Cell, system: str, account: Account | None) -> Verdict:
    labels = cell.before, cell.under, cell.after
    last: dict[str, Any] = dict(run.phases.get(cell.after, {}))
    return Verdict(
        kind=cell.kind,
        name=cell.name,
        system=system,
        ended=run.ended,
        rates=[run.rate(label) for label in labels],
        waits_ms=[run.wait_ms(label) for label in labels],
        dead=[run.dead_rows(label) for label in labels],
        megabytes=[run.megabytes(label) for label in labels],
        estimate=last.get("jobs_lost"),
        back_s=last.get("chaos_recovery_time_s"),
        account=account,
    )


def table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    """In Markdown, a row for each."""
    measured = ("jobs/s", "p99 wait, ms", "dead rows", "MB")
    heads = [f"{name} {when}" for name in measured for when in ("before", "under", "after")]
    yield f"| | system | {' | '.join(heads)} | lost | ran again | |\n"
    yield f"|{' --- |' * 17}\n"
    for each in verdicts:
        numbers = [f"{number:,.0f}" for row in (each.rates, each.waits_ms, each.dead) for number in row]
        numbers += [f"{size:.1f}" for size in each.megabytes]
        exact = (
            [f"{each.account.not_run} of {each.account.stored:,}", f"{each.account.repeated}"] if each.account else []
        )
        cells = [each.name, each.system, *numbers, *(exact or ["", ""]), each.wrong or f"{each.share:.0%}"]
        yield f"| {' | '.join(cells)} |\n"


def keep(verdict: Verdict, file: Path) -> None:
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(verdict) | {"account": verdict.account}) + "\n")


def kept(file: Path) -> list[Verdict]:
    read = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
    return [Verdict(**each | {"account": each["account"] and Account(*each["account"])}) for each in read]
