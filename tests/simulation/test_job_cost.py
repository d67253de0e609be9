"""What a delivered job and an idle cluster cost, against the tables of docs/scale.md: a change that costs more
fails here.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from tests.simulation.cost import Cost
from tests.simulation.cost_page import (
    IDLE_TABLE,
    JOB_TABLE,
    PAGE,
    SIZES,
    STORES,
    TIMES,
    changes,
    counted,
    job_rows,
    rows_of,
    with_rows,
)
from tests.simulation.job_cost import LOADS

MOST_SERVERS = 4
WRITE = (
    "what jobs or idle clusters cost has changed (docs/scale.md). Should they cost more? If so: "
    "python -m tests.simulation.cost_page"
)


@cache
def small() -> list[Cost]:
    return counted([size for size in SIZES if size.servers <= MOST_SERVERS])


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def test_jobs_and_idle_clusters_cost_what_the_page_says() -> None:
    assert changes(page(), small()) == [], WRITE


def test_it_is_known_of_each_call_of_an_idle_cluster_what_it_is_for() -> None:
    assert {str(size): each.others_per_s for size, each in zip(SIZES, small(), strict=False)} == {
        str(size): {} for size in SIZES if size.servers <= MOST_SERVERS
    }


def test_the_page_has_all_sizes_and_rates() -> None:
    sizes = {(f"{size.servers}{TIMES}{size.shards}", STORES[size.notifies]) for size in SIZES}
    assert set(rows_of(page(), IDLE_TABLE)) == sizes
    assert set(rows_of(page(), JOB_TABLE)) == {(*size, rate) for size in sizes for rate in LOADS}


def test_a_figure_that_rose_or_fell_is_named_with_what_it_was() -> None:
    before = small()[-1]
    text = with_rows(page(), JOB_TABLE, job_rows(before))
    job = before.jobs["lone"]
    cheaper = replace(job, calls={**job.calls, "count_ready": job.counts / 2})
    dearer = replace(job, calls={**job.calls, "enqueue": 2.0}, messages=7.0)
    fell, rose = (replace(before, jobs={"lone": each}) for each in (cheaper, dearer))
    key = f"{JOB_TABLE}, 4{TIMES}8, are polled, lone:"
    assert next(each for each in changes(text, [fell]) if "counts" in each).startswith(f"{key} counts fell from ")
    assert changes(text, [rose])[-1] == f"{key} messages rose from 0 to 7"
    unknown = replace(before, servers=5, per_s={}, jobs={"lone": job})
    assert changes(text, [unknown])[-1] == f"{JOB_TABLE}, 5{TIMES}8, are polled, lone: the page has no such row"
