"""Keys of jobs: templates and functions over their arguments, and what else few jobs have, as they are enqueued."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest

from pinlater.model import WHILE_KEPT, ExtendedJob, Job, OnDuplicate, ReplaceRunning
from pinlater_workers import App, ArgumentsInvalid, Batch, ConfigurationError, JobHandle
from pinlater_workers.jobs.job_type import JobType

app = App(servers=["127.0.0.1:1"])


@dataclass
class Order:
    account: str
    lines: list[int]


@app.job(queue="q", unique="{user_id}-{kind}", unique_for="10m", serialize="acc-{order.account}-{order.lines[0]}")
def charge(user_id: int, order: Order, *, kind: str = "card") -> None: ...


@app.job(queue="q")
def plain(user_id: int) -> None: ...


def keyed(job: Job) -> ExtendedJob:
    assert isinstance(job, ExtendedJob)
    return job


def test_templates_take_arguments_however_they_are_given_and_defaults() -> None:
    order = Order("ada", [7, 8])
    by_place, by_name = keyed(charge.options().job(3, order)), keyed(charge.options().job(order=order, user_id=3))
    assert (by_place.dedupe_key, by_place.serialize_key) == (by_name.dedupe_key, by_name.serialize_key)
    assert (by_place.dedupe_key, by_place.serialize_key) == ("charge:3-card", "acc-ada-7")
    assert (by_place.dedupe_for_ms, by_place.on_duplicate) == (600_000, OnDuplicate.KEEP)
    many = charge.options().jobs([(4, order), {"user_id": 5, "order": order, "kind": "iban"}])
    assert [keyed(each).dedupe_key for each in many] == ["charge:4-card", "charge:5-iban"]


def test_jobs_without_any_of_it_are_plain() -> None:
    assert type(plain.options().job(1)) is Job
    assert type(charge.options(unique=False, serialize=False).job(1, Order("a", [1]))) is ExtendedJob


def test_options_say_otherwise_for_one_job() -> None:
    clock = app.clock.now_ms
    options = plain.options(
        unique=lambda user_id: f"u{user_id}" if user_id else None,
        unique_for="kept",
        on_duplicate="replace",
        serialize="all",
        expires="1h",
        claim_timeout=30,
        delay="1h",
    )
    before_ms = clock()
    job = keyed(options.job(7))
    assert (job.dedupe_key, job.serialize_key, job.dedupe_for_ms) == ("plain:u7", "all", WHILE_KEPT)
    assert (job.on_duplicate, job.claim_timeout_ms) == (OnDuplicate.REPLACE, 30_000)
    assert job.expires_at_ms is not None
    assert job.run_after_ms is not None
    assert job.expires_at_ms == job.run_after_ms + 3_600_000 >= before_ms + 7_200_000
    none = keyed(options.job(0))
    assert (none.dedupe_key, none.dedupe_for_ms, none.on_duplicate) == ("", 0, OnDuplicate.KEEP)
    at = datetime(2030, 1, 1, tzinfo=UTC)
    assert keyed(plain.options(expires=at).job(1)).expires_at_ms == int(at.timestamp() * 1000)


REPLACING = {"unique": "{user_id}", "on_duplicate": "replace"}


def test_a_type_and_one_job_say_how_jobs_are_replaced() -> None:
    newest = declare(takes, **REPLACING, replace_running="enqueue", replace_within="10s")
    job = keyed(newest.options().job(1))
    assert (job.replace_running, job.replace_within_ms) == (ReplaceRunning.ENQUEUE, 10_000)
    job = keyed(newest.options(replace_running="cancel", replace_within="1s").job(1))
    assert (job.replace_running, job.replace_within_ms) == (ReplaceRunning.CANCEL, 1_000)
    job = keyed(newest.options(on_duplicate="keep").job(1))
    assert (job.replace_running, job.replace_within_ms) == (ReplaceRunning.KEEP, None)
    with pytest.raises(ValueError, match="goes with on_duplicate"):
        newest.options(on_duplicate="keep", replace_running="cancel")


def declare(function: Callable[..., Any], **options: Any) -> JobType:
    return App(servers=["127.0.0.1:1"]).job(queue="q", name="job", **options)(function)


def takes(user_id: int, password: str = "") -> None: ...


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            {"unique": "{usr_id}"},
            r"'\{usr_id\}', and the function has no argument 'usr_id'; .*did you mean user_id",
        ),
        ({"serialize": "{}"}, r"has no argument ''; allowed: user_id, password"),
        ({"serialize": "{user_id"}, "serialize is '{user_id': expected '}'"),
        ({"unique": "{user_id:{width}}"}, "has no argument 'width'"),
        ({"unique": "{password}", "secret": ["password"]}, "'password' is secret: keys are shown"),
        ({"unique": ""}, "it is empty; allowed: a template over the arguments"),
        ({"unique": 7}, "unique is 7; allowed: a template"),
        ({"unique_for": "10m"}, "unique_for goes with unique; set unique too"),
        ({"on_duplicate": "keep"}, "on_duplicate goes with unique"),
        ({"unique": "{user_id}", "on_duplicate": "drop"}, "allowed: keep, replace or reject"),
        ({"replace_within": "10s"}, "replace_within goes with unique"),
        ({"unique": "{user_id}", "replace_running": "cancel"}, 'replace_running goes with on_duplicate="replace"'),
        ({**REPLACING, "on_duplicate": "reject", "replace_within": "1s"}, "replace_within goes with on_duplicate"),
        ({**REPLACING, "replace_running": "stop"}, "allowed: keep, enqueue or cancel"),
        ({**REPLACING, "replace_within": "0s"}, "replace_within is '0s'; allowed: 1ms to"),
        ({"unique": "{user_id}", "unique_for": "ever"}, "allowed: 0s to 3650d, as in 250ms, 90s, 1h30m, 2d; or kept"),
        ({"expires": "0s"}, "expires is '0s'; allowed: 1ms to"),
    ],
)
def test_what_cannot_be_fails_where_the_job_is_declared(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        declare(takes, **options)
    if "secret" not in options:
        with pytest.raises(ValueError, match=said):
            declare(takes).options(**options)


def test_functions_of_any_names_batches_and_raw_jobs() -> None:
    def anything(**names: str) -> None: ...

    def batched(batch: Batch[Order]) -> None: ...

    def raw(body: bytes) -> None: ...

    assert keyed(declare(anything, unique="{a}{b}").options().job(a="x", b="y")).dedupe_key == "job:xy"
    with pytest.raises(ArgumentsInvalid, match="unique cannot be made from its arguments: KeyError: 'b'"):
        declare(anything, unique="{a}{b}").options().job(a="x")
    by_account = declare(batched, batch=10, serialize="{arguments.account}")
    assert keyed(by_account.options().job(Order("ada", []))).serialize_key == "ada"
    with pytest.raises(ConfigurationError, match="is raw, and unique is the template 'x'; allowed: a function"):
        App().raw_job(queue="q", unique="x")(raw)
    job = App().raw_job(queue="q", unique=lambda body: body.decode())(raw)
    assert keyed(job.options().job(b"one")).dedupe_key == "raw:one"


@pytest.mark.parametrize("key", ["", "@x", 7, b"x"])
def test_what_is_no_key_is_refused_by_the_enqueue(key: object) -> None:
    with pytest.raises(ArgumentsInvalid, match="allowed: a text of 1 to 255 bytes with no @ in front"):
        declare(takes, serialize=lambda *_: key).options().job(1)


def test_a_key_that_is_too_long_says_what_to_do() -> None:
    with pytest.raises(ArgumentsInvalid, match=r"unique has 304 bytes; .* give a function that hashes it"):
        declare(takes, unique="{password}").options().job(1, "ä" * 150)
    with pytest.raises(ArgumentsInvalid, match="which is no Unicode"):
        declare(takes, serialize=lambda *_: "\ud800").options().job(1)


def test_of_many_jobs_none_is_rejected() -> None:
    job = declare(takes, unique="{user_id}", on_duplicate="reject")
    with pytest.raises(ArgumentsInvalid, match="on_duplicate is reject, which is for one job at a time"):
        job.enqueue_many([(1,)])


def test_a_handle_is_its_descriptor() -> None:
    handle: JobHandle[None] = JobHandle.of("q:s1:p1:1790000000000000", plain)
    assert handle == "q:s1:p1:1790000000000000"
    assert type(pickle.loads(pickle.dumps(handle))) is str

    @app.job(queue="q")
    def collect(parts: list[str], one: str) -> None: ...

    job = collect.options().job([handle], handle)
    assert b'{"job":"collect","args":[["q:s1:p1:1790000000000000"],"q:s1:p1:1790000000000000"]}' in job.body
