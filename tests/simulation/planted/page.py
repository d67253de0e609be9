"""docs/simulation-faults.md: what the catalogue says, as a page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.simulation.plan import Plan
from tests.simulation.planted.catalogue import Entry, entries, pairing
from tests.simulation.planted.plans import PLANS
from tests.simulation.planted.reasons import Reason
from tests.simulation.planted.sentences import WHY

PAGE = Path(__file__).parents[3] / "docs" / "simulation-faults.md"
_HEAD = """# Planted faults
A judge that never found a fault may be blind.
So guards of the product are taken out, one by one, and the [simulation](testing.md#simulated-clusters) must find it.
These are the guards of the lists of mutations in `tests/conformance/`,
and some above the stores (`tests/simulation/planted/guards.py`).

```sh
.venv/bin/python -m tests.simulation.planted                      # all of them, each by the plan that finds it
.venv/bin/python -m tests.simulation.planted early --shrink       # those of that name, and the shortest plan
.venv/bin/python -m tests.simulation.planted early --hours 2      # by one plan after the other, until it is found
```

In `tests/simulation/planted/`, `found.py` names the plan that finds each guard, and `reasons.py` says why none can.
This page is written by `.venv/bin/python -m tests.simulation.planted --page > docs/simulation-faults.md`.
"""


def page() -> str:
    """The whole page."""
    all_of_them = entries()
    planted = [each for each in all_of_them.values() if each.is_planted]
    others = [each for each in all_of_them.values() if not each.is_planted]
    sentences = {name: sentence for sentence, names in WHY.items() for name in names}
    return "\n".join(
        [
            _HEAD,
            "## In numbers",
            *_table(("guards", "number"), _numbers(planted, others)),
            "",
            "## The plans",
            "Each runs with one seed after the other, until it has found the fault or the bound is reached.",
            "",
            *_table(("plan", "parts", "servers, shards", "minutes", "faults"), map(_plan_row, PLANS.items())),
            "",
            "## Found",
            "`rule` is the one of the checker that is broken then; what other rules say does not count. "
            "The bound is in minutes of virtual time, over all seeds. "
            "`elsewhere` counts the guards of other stores that are the same in other words.",
            "",
            *_table(("guard", "plan", "rule", "minutes", "elsewhere"), map(_found_row, planted)),
            "",
            "## Not found",
            *_table(("reason", "what it means", "guards"), _reason_rows(others)),
            "",
            "Guards of SQLite and above the stores that no plan finds. "
            "What has a sentence was looked into one by one; "
            "the other reasons are readings of the code, which no run has tried to disprove:",
            "",
            *_table(
                ("guard", "reason", "why"),
                [
                    (_code(each.name), _word(each), sentences.get(each.name, ""))
                    for each in others
                    if each.change.store == "sqlite"
                ],
            ),
            "",
            "Guards that only other stores have:",
            "",
            *_table(
                ("guard", "reason"),
                [
                    (_code(each.name), _word(each))
                    for each in others
                    if each.change.store != "sqlite" and not pairing()[each.name]
                ],
            ),
            "",
        ]
    )


def _numbers(planted: Sequence[Entry], others: Sequence[Entry]) -> list[tuple[str, str]]:
    bounds = [each.minutes for each in planted]
    counts = Counter(bound for bound in bounds)
    return [
        ("all", str(len(planted) + len(others))),
        *((f"found within {bound} virtual minutes", str(count)) for bound, count in sorted(counts.items())),
        *((f"not found: {_text(reason)}", str(count)) for reason, count in _by_reason(others)),
    ]


def _by_reason(others: Iterable[Entry]) -> list[tuple[Reason, int]]:
    counts = Counter(each.reason for each in others)
    return [(reason, counts[reason]) for reason in Reason if counts[reason]]


def _reason_rows(others: Sequence[Entry]) -> list[tuple[str, ...]]:
    return [(_text(reason), str(reason.value), str(count)) for reason, count in _by_reason(others)]


def _plan_row(item: tuple[str, Plan]) -> tuple[str, ...]:
    name, plan = item
    faults = Counter(fault.kind for fault in plan.faults)
    return (
        name,
        ", ".join(plan.parts),
        f"{plan.servers}, {plan.shards}",
        f"{plan.minutes:g}",
        ", ".join(f"{count} `{kind}`" for kind, count in faults.items()) or "none",
    )


def _found_row(entry: Entry) -> tuple[str, ...]:
    stores = Counter(name.partition(" ")[0] for name in entry.elsewhere)
    elsewhere = ", ".join(f"{store} {count}" for store, count in sorted(stores.items()))
    return _code(entry.name), entry.plan, f"`{entry.rule}`", str(entry.minutes), elsewhere


def _word(entry: Entry) -> str:
    assert entry.reason is not None
    return _text(entry.reason)


def _text(reason: Reason) -> str:
    return reason.name.lower().replace("_", " ")


def _code(name: str) -> str:
    text = " ".join(name.split()).replace("|", "\\|")
    return f"`` {text} ``" if "`" in text else f"`{text}`"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *map(_row, rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
