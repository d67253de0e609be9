"""The tables of docs/scale.md that are counted in the simulation, and how they are counted again.

`python -m tests.simulation.cost_page` writes all rows anew, which takes an hour; `… 4x8 10x20` those of some sizes. The
figures are kept on the page alone: a test counts small sizes again and compares (test_job_cost.py).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import structlog

from tests.simulation.calls import IDLE
from tests.simulation.cost import Cost, cost
from tests.simulation.job_cost import LOADS, JobCost

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "scale.md"
SIZES = ((1, 1), (1, 2), (4, 8), (10, 20), (30, 60), (100, 200))
LARGEST_POLLED = 30
"""Servers: 100 that poll 200 stores make half a million calls a second."""

TIMES = " \N{MULTIPLICATION SIGN} "
STORES = {True: "notify", False: "are polled"}
IDLE_TABLE, JOB_TABLE = "idle cluster", "delivered job"

Row = tuple[str, ...]
Key = tuple[str, ...]
"""What a row is about: size, stores, and of a job its rate."""


# -- counting ----------------------------------------------------------------------------------------------------------


def counted(servers: int, shards: int, *, notifies: bool) -> Cost:
    """The same figures each time: in a process of its own, whose sets of names are in one order."""
    command = [sys.executable, "-m", "tests.simulation.cost_page", "--count", str(servers), str(shards), str(notifies)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    made = subprocess.run(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, check=True)
    return msgspec.json.decode(made.stdout, type=Cost)


def _count(servers: int, shards: int, notifies: bool) -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    is_large = servers > 10
    jobs = dict.fromkeys(LOADS, 0) | {"lone": 5 if is_large else 20, "10/s": 20 if is_large else 100}
    seconds = 3.0 if is_large else 10.0
    sys.stdout.write(msgspec.json.encode(cost(servers, shards, notifies=notifies, seconds=seconds, jobs=jobs)).decode())


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


def main(sizes: Sequence[str]) -> None:
    for servers, shards in SIZES:
        for notifies in STORES:
            is_asked = not sizes or f"{servers}x{shards}" in sizes
            if not is_asked or (not notifies and servers > LARGEST_POLLED):
                continue
            each = counted(servers, shards, notifies=notifies)
            page = with_rows(PAGE.read_text(encoding="utf-8"), IDLE_TABLE, idle_rows(each))
            PAGE.write_text(with_rows(page, JOB_TABLE, job_rows(each)), encoding="utf-8")
            print(
                f"{servers} x {shards}, stores {STORES[notifies]}: {each.virtual_s:.0f} virtual seconds in "
                f"{each.processor_s:.0f} s of a core",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["--count"]:
        _count(int(sys.argv[2]), int(sys.argv[3]), sys.argv[4] == "True")
    else:
        main(sys.argv[1:])
