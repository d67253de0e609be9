"""Tags of jobs as programs declare them, and as their jobs see them."""

from __future__ import annotations

from typing import Any

import pytest

from pinlater.model import ExtendedJob, Job
from pinlater_workers import App, testing
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.jobs.context import current
from pinlater_workers.jobs.job_schedule import schedule_of

app = App(servers=["127.0.0.1:1"])
seen: list[tuple[str, ...]] = []


@app.job(queue="mail", tags=("mail", "tenant:7"), every="10m")
def tagged() -> None:
    seen.append(current().tags)


@app.job(queue="mail")
def plain() -> None:
    seen.append(current().tags)


def test_jobs_have_the_tags_of_their_type_or_those_of_the_enqueue_and_see_them() -> None:
    seen.clear()
    with testing.in_memory(app) as jobs:
        tagged.enqueue()
        tagged.options(tags=["x"]).enqueue()
        tagged.options(tags=[]).enqueue()
        plain.enqueue()
        plain.options(tags=("tenant:8",)).enqueue()
        jobs.run_all()
        assert [run.tags for run in jobs.runs] == seen
    assert seen == [("mail", "tenant:7"), ("x",), (), (), ("tenant:8",)]


def test_a_plain_job_is_what_it_was() -> None:
    job = plain.options(delay=1).job()
    assert type(job) is Job
    assert b"tags" not in job.body
    extended = tagged.options().job()
    assert isinstance(extended, ExtendedJob)
    assert extended.tags == ("mail", "tenant:7")


def test_the_schedule_of_a_type_has_its_tags() -> None:
    schedule = schedule_of(tagged)
    assert schedule is not None
    assert schedule.tags == ("mail", "tenant:7")
    seen.clear()
    with testing.in_memory(app) as jobs:
        jobs.run_for(600)
        assert jobs.runs[0].tags == ("mail", "tenant:7")
    assert seen == [("mail", "tenant:7")]


@pytest.mark.parametrize("tags", ["tenant", [""], ["x" * 65], ["a\nb"], ["a", "a"], [7], list("abcdefghijk")])
def test_tags_that_cannot_be_are_refused_where_they_are_declared(tags: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"tags is .*allowed: a list of up to 10 texts of 1 to 64 bytes"):
        app.job(queue="mail", name="wrong", tags=tags)(lambda: None)
    with pytest.raises(ValueError, match="a list of up to 10 texts"):
        plain.options(tags=tags)
