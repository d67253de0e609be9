"""The tables of docs/scale.md that are counted in the simulation, and how they are counted again.

`python -m tests.simulation.cost_page` writes all rows anew, which takes half an hour; with `4x8 4x8,polled` those of
these sizes. The figures are kept on the page alone: a test counts small sizes again and compares (test_job_cost.py).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import msgspec
import structlog

from tests.simulation.calls import IDLE
from tests.simulation.cost import Cost, cost
from tests.simulation.job_cost import LOADS, JobCost

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scale.md"
LARGEST_POLLED = 10
"""Servers: 30 that poll 60 stores make 45,000 calls a second."""

TIMES = " \N{MULTIPLICATION SIGN} "
STORES = {True: "notify", False: "are polled"}
MOST, LEAST = 1.12, 0.75
STEP, PER_CENT_STEP = 0.03, 4.0
"""A figure is about the same from one of these parts of it to the other, and a step beyond."""

IDLE_TABLE, JOB_TABLE = "idle cluster", "delivered job"

Row = tuple[str, ...]
Key = tuple[str, ...]
"""What a row is about: size, stores, and of a job its rate."""


# -- counting ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Size:
    servers: int
    shards: int
    notifies: bool

    def __str__(self) -> str:
        return f"{self.servers}x{self.shards}{'' if self.notifies else ',polled'}"

    @classmethod
    def of(cls, text: str) -> Self:
        size, _, polled = text.partition(",")
        servers, _, shards = size.partition("x")
        return cls(int(servers), int(shards), not polled)


SIZES = [
    Size(servers, shards, notifies)
    for servers, shards in ((1, 1), (1, 2), (4, 8), (10, 20), (30, 60), (100, 200))
    for notifies in (True, False)
    if notifies or servers <= LARGEST_POLLED
]


def counted(sizes: Sequence[Size]) -> list[Cost]:
    """The same figures each time: in a process of its own, whose sets of names are in one order."""
    command = [sys.executable, "-m", "tests.simulation.cost_page", "--count", *map(str, sizes)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    made = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(made.stdout, type=list[Cost])


def _count(size: Size) -> Cost:
    """Large ones for a shorter time: they do as much in it. Whole turns of the polls, which come each 1.5 s."""
    if size.servers <= 10:
        seconds, jobs = 10.0, (20, 100, 20, 20)
    elif size.servers <= 30:
        seconds, jobs = 3.0, (5, 30, 20, 20)
    else:
        seconds, jobs = 3.0, (5, 15, 3, 3)
    amounts = dict(zip(LOADS, jobs, strict=True))
    return cost(size.servers, size.shards, notifies=size.notifies, seconds=seconds, jobs=amounts)


# -- tables ------------------------------------------------------------------------------------------------------------


def idle_rows(each: Cost) -> dict[Key, Row]:
    key = (_size(each), STORES[each.notifies])
    cells = [f"{_figure(rate / each.servers)}, {_figure(rate / each.shards)}" for rate in each.per_s.values()]
    return {key: (*cells, _figure(each.lease_bytes_per_s / 1e6))}


def job_rows(each: Cost) -> dict[Key, Row]:
    return {(_size(each), STORES[each.notifies], rate): job_row(job) for rate, job in each.jobs.items()}


def job_row(job: JobCost) -> Row:
    empty = f"{100 * job.empty_claims:.0f} %"
    return (_figure(job.counts), _figure(job.claims), empty, *map(_figure, (job.polls, job.all_calls, job.messages)))


def _size(each: Cost) -> str:
    return f"{each.servers}{TIMES}{each.shards}"


def _figure(number: float) -> str:
    """Two digits behind the point where it is small, and none where it is large."""
    digits = 2 if number < 10 else 1 if number < 100 else 0
    text = f"{number:,.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


HEADS: Mapping[str, tuple[Key, Row]] = {
    IDLE_TABLE: ((f"servers{TIMES}shards", "stores"), (*IDLE, "leases, MB/s in all")),
    JOB_TABLE: (
        (f"servers{TIMES}shards", "stores", "jobs"),
        ("counts", "claims", "of them empty", "polls", "all calls of stores", "messages"),
    ),
}
"""Of each table the columns that say what a row is about, and its figures."""


def rows_of(page: str, table: str) -> dict[Key, Row]:
    """Those that the page has."""
    _, begin, rest = page.partition(_begin(table))
    text, end, _ = rest.partition(_end(table))
    if not begin or not end:
        raise ValueError(f"the page has no marks of the table of an {table}")
    keys = len(HEADS[table][0])
    cells = [tuple(cell.strip() for cell in line.strip("|").split("|")) for line in text.split("\n") if line]
    return {row[:keys]: row[keys:] for row in cells[2:]}


def with_rows(page: str, table: str, rows: Mapping[Key, Row]) -> str:
    """The page with these rows beside, or in place of, those that it has, in order of size."""
    known = {**rows_of(page, table), **rows}
    keys, figures = HEADS[table]
    lines: Iterable[Sequence[str]] = (
        (*keys, *figures),
        ["---"] * (len(keys) + len(figures)),
        *((*key, *known[key]) for key in sorted(known, key=_order)),
    )
    before, _, rest = page.partition(_begin(table))
    _, _, after = rest.partition(_end(table))
    text = "".join(f"| {' | '.join(line)} |\n" for line in lines)
    return f"{before}{_begin(table)}\n{text}{_end(table)}{after}"


def _begin(table: str) -> str:
    return f"<!-- {table}: tests/simulation/cost_page.py -->"


def _end(table: str) -> str:
    return f"<!-- end of {table} -->"


def _order(key: Key) -> tuple[int, int, int, int]:
    size, stores, *rate = key
    servers, _, shards = size.partition(TIMES)
    return int(servers), int(shards), [*STORES.values()].index(stores), [*LOADS].index(rate[0]) if rate else 0


def print_job_costs(servers: int | None, shards: int | None, *, notifies: bool) -> None:
    """The table of jobs, of one size or of all; a size is printed as soon as it was counted."""
    some = [Size(servers or 1, shards or 2, notifies)] if servers or shards else []
    keys, figures = HEADS[JOB_TABLE]
    print(_line((*keys, *figures)))
    for size in some or [each for each in SIZES if each.notifies == notifies]:
        for key, row in job_rows(*counted([size])).items():
            print(_line((*key, *row)), flush=True)


def _line(cells: Sequence[str]) -> str:
    first, *others = cells
    return f"{first:>16} " + " ".join(f"{cell:>13}" for cell in others)


# -- comparing ---------------------------------------------------------------------------------------------------------


def changes(page: str, costs: Sequence[Cost]) -> list[str]:
    """The figures that are not as the page has them, each with what it was and what it is."""
    texts = []
    for table, rows in ((IDLE_TABLE, idle_rows), (JOB_TABLE, job_rows)):
        known, names = rows_of(page, table), HEADS[table][1]
        for key, row in ((key, row) for each in costs for key, row in rows(each).items()):
            if key not in known:
                texts.append(f"{table}, {', '.join(key)}: the page has no such row")
                continue
            for name, before, now in zip(names, known[key], row, strict=True):
                if change := _change(before, now):
                    texts.append(f"{table}, {', '.join(key)}: {name} {change} from {before} to {now}")
    return texts


def _change(before: str, now: str) -> str:
    """A verb; "" where all figures of the cell are about the same: chance moves them when anything else changes."""
    step = PER_CENT_STEP if "%" in now else STEP
    pairs = list(zip(_figures(before), _figures(now), strict=True))
    if any(new > old * MOST + step for old, new in pairs):
        return "rose"
    return "fell" if any(new < old * LEAST - step for old, new in pairs) else ""


def _figures(cell: str) -> list[float]:
    return [float(number.replace(",", "")) for number in cell.removesuffix(" %").split(", ")]


def main(arguments: Sequence[str]) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    if arguments[:1] == ["--count"]:
        sys.stdout.write(msgspec.json.encode([_count(Size.of(text)) for text in arguments[1:]]).decode())
        return
    for size in map(Size.of, arguments) if arguments else SIZES:
        (each,) = counted([size])
        page = with_rows(PAGE.read_text(encoding="utf-8"), IDLE_TABLE, idle_rows(each))
        PAGE.write_text(with_rows(page, JOB_TABLE, job_rows(each)), encoding="utf-8")
        print(f"{size}: {each.virtual_s:.0f} virtual seconds in {each.processor_s:.0f} s of a core", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
