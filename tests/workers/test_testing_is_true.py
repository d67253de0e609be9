"""A job in memory ends as it does on a real server: the same state, attempts, status and body."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from pinlater.errors import BodyTooLarge, PinLaterError, QueueNotFound
from pinlater.model import JobState
from pinlater_workers import testing
from pinlater_workers.jobs.context import current
from pinlater_workers.jobs.job_type import JobType
from pinlater_workers.jobs.outcome import Fail, Reschedule, Retry, Snooze
from tests.server.running import RunningServer, running
from tests.workers.site import Site

PLANS = (
    "ok",
    "error ok",
    "error error error error",
    "refused ok",
    "fail",
    "error fail",
    "retry retry ok",
    "retry retry retry",
    "snooze snooze ok",
    "snooze snooze snooze ok",
    "error snooze error snooze ok",
    "store error store snooze store reschedule store ok",
    "status error status snooze status ok",
    "error error reschedule error error ok",
    "snooze snooze reschedule snooze snooze ok",
    "renew renew ok",
    "exit ok",
)
SHORT_S = 0.001


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running(tmp_path_factory.mktemp("server")) as started:
        yield started


def follower(site: Site) -> JobType:
    """A job that does one step of its plan after another, wherever it runs."""
    at: Counter[tuple[str, str]] = Counter()

    @site.app.job(
        queue=site.queue, retry=[SHORT_S, SHORT_S], retry_on={PermissionError: "never"}, max_snoozes=2, attempts=3
    )
    def follow(where: str, plan: str, done: int = 0) -> None:
        steps = plan.split()
        while True:
            step = steps[at[where, plan]]
            at[where, plan] += 1
            if step == "ok":
                return
            if step == "store":
                current().checkpoint(follow.body(where, plan, done + 1))
            elif step == "status":
                current().set_status(f"at {at[where, plan]}")
            else:
                raise error(step, follow.body(where, plan, done + 1))

    def error(step: str, body: bytes) -> BaseException:
        errors = {
            "error": ValueError("oh"),
            "refused": PermissionError("no"),
            "fail": Fail("never"),
            "retry": Retry("again", after=SHORT_S),
            "snooze": Snooze(SHORT_S, "later"),
            "reschedule": Reschedule(SHORT_S, message="anew"),
            "renew": Reschedule(SHORT_S, body=body),
            "exit": SystemExit(3),
        }
        return errors[step]

    return follow


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({}, "x" * 2_000_000),
    ({"priority": 0}, ""),
    ({"priority": 4}, ""),
    ({"run_after": 2**53}, ""),
]


async def test_a_server_and_memory_refuse_the_same_with_the_same_words(server: RunningServer) -> None:
    async with Site(server.port) as site:

        @site.app.job(queue=site.queue)
        def take(text: str) -> None:
            if text == "grow":
                current().checkpoint(take.body("x" * 2_000_000))

        for options, text in REFUSED:
            with pytest.raises(PinLaterError) as by_server:
                await take.options(**options).enqueue_many_async([("right",), (text,)])
            with testing.in_memory(site.app) as jobs, pytest.raises(PinLaterError) as by_memory:
                take.options(**options).enqueue_many([("right",), (text,)])
            assert type(by_memory.value) is type(by_server.value)
            words = str(by_memory.value)
            assert words
            assert str(by_server.value) in (words, f"{by_server.value.reason}: {words}")
            assert jobs.runs == []
        assert await site.count(JobState.PENDING) == 0

        with pytest.raises(QueueNotFound):
            await take.options(queue="nowhere").enqueue_async("a")
        run = await testing.run_async(take, "grow")
        assert isinstance(run.errors[0], BodyTooLarge)
        async with site.working():
            descriptor = await take.options(attempts=1).enqueue_async("grow")
            assert "BodyTooLarge" in (await site.ended(descriptor)).custom_status


def untimed(status: str) -> str:
    """Without when an attempt began, and how long it took."""
    text, brackets = re.subn(r" \[\S+Z, \S+s, (\S+)\]\n", r" [\1]\n", status)
    assert brackets == status.count("attempt "), "each failed attempt says when"
    return text


async def test_in_memory_and_on_a_server(server: RunningServer) -> None:
    async with Site(server.port) as site:
        job = follower(site)
        expected = [await testing.run_async(job, "memory", plan) for plan in PLANS]
        async with site.working():
            descriptors = await job.enqueue_many_async([("real", plan) for plan in PLANS])
            ended = [await site.ended(descriptor) for descriptor in descriptors]
    for plan, run, info in zip(PLANS, expected, ended, strict=True):
        assert info.state is run.state, plan
        assert (info.attempts_allowed, info.attempts_remaining) == (run.attempts_allowed, run.attempts_remaining), plan
        assert untimed(info.custom_status) == untimed(run.status), plan
        assert info.body == run.body.replace(b"memory", b"real"), plan
