"""Groups of jobs as programs declare them."""

from __future__ import annotations

import pytest

from pinlater.model import ExtendedJob, Job
from pinlater_workers import App, testing
from pinlater_workers.errors import ArgumentsInvalid, ConfigurationError
from pinlater_workers.jobs.job_schedule import schedule_of

app = App(servers=["127.0.0.1:1"])


@app.job(queue="mail", group="{tenant}")
def send(tenant: str, number: int) -> None:
    """Nothing."""


@app.job(queue="mail", group=lambda: "night", every="10m")
def nightly() -> None:
    """Nothing."""


@app.job(queue="mail")
def plain(tenant: str = "") -> None:
    """Nothing."""


def group_of(job: Job) -> str:
    return job.group if isinstance(job, ExtendedJob) else ""


def test_jobs_have_the_group_of_their_type_or_that_of_the_enqueue() -> None:
    with testing.in_memory(app) as jobs:
        send.enqueue("acme", 1)
        send.options(group="number-{number}").enqueue("acme", 2)
        send.options(group=False).enqueue("acme", 3)
        plain.enqueue()
        plain.options(group="{tenant}").enqueue("betty")
        assert [run.group for run in jobs.runs] == ["acme", "number-2", "", "", "betty"]
        jobs.run_all()
    assert type(plain.options(delay=1).job()) is Job
    assert list(map(group_of, send.options().jobs([("acme", 1), ("betty", 2)]))) == ["acme", "betty"]


def test_the_schedule_of_a_type_has_its_group() -> None:
    schedule = schedule_of(nightly)
    assert schedule is not None
    assert schedule.group == "night"


def test_what_cannot_be_a_group_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="no argument 'customer'"):

        @app.job(queue="mail", group="{customer}")
        def wrong(tenant: str) -> None:
            """Nothing."""

    with pytest.raises(ArgumentsInvalid, match="group"):
        send.enqueue("x" * 256, 1)
