"""What Redis' store does without a Redis: addresses, packed records, and what an error means."""

from __future__ import annotations

import ssl

import pytest

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckRequest
from pinlater.backends.redis.address import parse_address
from pinlater.backends.redis.connection import ReplyError, mapped
from pinlater.backends.redis.records import (
    CHANGED,
    CLAIM,
    HEAD,
    ID,
    ack_args,
    dequeued,
    descriptors,
    enqueue_args,
)
from pinlater.backends.redis.scripts import load_scripts
from pinlater.errors import NothingStored, OutcomeUnknown, RequestInvalid, StoreFull
from pinlater.model import Job

NOW_MS = 1_790_000_000_123


def test_an_address_has_all_its_parts() -> None:
    address = parse_address("redis://user:p%40ss@store:7000/3?prefix=mail-2")
    assert (address.host, address.port, address.db, address.prefix) == ("store", 7000, 3, "mail-2")
    assert (address.username, address.password) == ("user", "p@ss")
    assert address.tls is None
    assert "p@ss" not in address.shown


def test_an_address_has_the_usual_defaults() -> None:
    address = parse_address("redis://127.0.0.1")
    assert (address.port, address.db, address.prefix, address.password) == (6379, 0, "pinlater", None)


def test_tls_checks_the_certificate_and_the_name_unless_told_otherwise() -> None:
    checked = parse_address("rediss://store/0").tls
    assert checked is not None
    assert checked.verify_mode is ssl.CERT_REQUIRED
    assert checked.check_hostname
    unchecked = parse_address("rediss://store/0?ssl_cert_reqs=none&ssl_check_hostname=false").tls
    assert unchecked is not None
    assert unchecked.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    "url",
    [
        "redis://x/0?prefix=a{b}",
        "redis://x/0?prefix=a%20b",
        "redis://x/mail",
        "redis://x/0?prefx=mail",
        "http://x",
        "rediss://x?ssl_wrong=1",
    ],
)
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    with pytest.raises(RequestInvalid):
        parse_address(url)


@pytest.mark.parametrize(
    "text",
    [
        "READONLY You can't write against a read only replica. script: 3f2a, on @user_script:12.",
        "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk. script: 3f2a",
        "ERR Error running script (call to f_3f2a): @user_script:1: -READONLY You can't write",
        "LOADING Redis is loading the dataset in memory",
        "NOAUTH Authentication required.",
        "BUSY Redis is busy running a script.",
        "MOVED 3999 127.0.0.1:6381",
        "CLUSTERDOWN The cluster is down",
        "ERR max number of clients reached",
    ],
)
def test_what_redis_refused_stored_nothing(text: str) -> None:
    assert type(mapped(ReplyError(text))) is NothingStored


@pytest.mark.parametrize(
    "text",
    [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "OOM command not allowed when used memory > 'maxmemory'. script: 3f2a, on @user_script:12.",
        "ERR Error running script (call to f_3f2a): @user_script:1: -OOM command not allowed",
    ],
)
def test_what_redis_has_no_memory_for_stored_nothing_and_says_what_to_do(text: str) -> None:
    error = mapped(ReplyError(text))
    assert type(error) is StoreFull
    assert "raise maxmemory" in error.message


@pytest.mark.parametrize(
    "text",
    [
        "ERR user_script:7: attempt to index a nil value script: 3f2a, on @user_script:7.",
        "NOPERM this user has no permissions to run 'zadd' script: 3f2a, on @user_script:9.",
        "WRONGTYPE Operation against a key holding the wrong kind of value script: 3f2a, on @user_script:9.",
        "SOMETHING never heard of",
    ],
)
def test_what_may_have_stored_something_has_an_unknown_outcome(text: str) -> None:
    assert type(mapped(ReplyError(text))) is OutcomeUnknown


def test_records_are_as_long_as_the_scripts_take_them_to_be() -> None:
    assert (HEAD.size, CHANGED.size, CLAIM.size) == (15, 20, 21)


def test_every_script_names_what_it_takes_and_what_bounds_it() -> None:
    for script in load_scripts().values():
        assert "-- KEYS " in script.source, script.name
        assert "-- RETURNS " in script.source, script.name
        assert "-- BOUND " in script.source, script.name
        assert "--#include" not in script.source, script.name


def test_jobs_of_several_priorities_keep_their_places() -> None:
    jobs = [Job(b"a", priority=2), Job(b"b", priority=1), Job(b"c", priority=2, run_after_ms=5)]
    args, priorities = enqueue_args(jobs, NOW_MS)
    assert args[:7] == [2, 2, 2, b"", 1, 1, NOW_MS]
    assert args[9:13] == [NOW_MS, 5, 0, 2]
    assert args[14:] == [1]
    first = 1_790_000_000_000_000
    assert descriptors("mail", "1", priorities, first, 3) == [
        f"mail:s1:p2:{first}",
        f"mail:s1:p1:{first + 1}",
        f"mail:s1:p2:{first + 2}",
    ]


@pytest.mark.parametrize("count", [1, 2, 3, 100, 1_003, 2_500])
def test_descriptors_go_on_over_a_thousand(count: int) -> None:
    first = 1_790_000_000_000_998
    assert descriptors("mail", "1", [2], first, count) == [f"mail:s1:p2:{first + n}" for n in range(count)]


def test_dequeued_jobs_are_each_told_with_what_is_their_own() -> None:
    ids = [1_790_000_000_000_998, 1_790_000_000_000_999, 1_790_000_000_001_000, 1_790_000_000_001_001, 10**15, 10**15]
    heads = [(7, 5, 1, 0), (7, 5, 1, 0), (7, 5, 1, 0), (7, 5, 2, 2), (7, 4, 2, 0), (8, 5, 1, 0)]
    values = [HEAD.pack(*head) + b"okay"[: head[3]] + b"body" for head in heads]
    changed = [b"", b"", CHANGED.pack(9, 1, 3, 0), b"", b"", b""]
    packed = b"".join(map(ID.pack, ids))
    jobs = dequeued([packed, b"5,5,6,6,6,5", values, changed, ()], "mail", "1", "claim", 99)
    assert [(job.descriptor, job.run_after_ms, job.attempts_remaining) for job in jobs] == [
        (f"mail:s1:p{head[2]}:{each}", run_after_ms, remaining)
        for each, head, run_after_ms, remaining in zip(ids, heads, (5, 5, 6, 6, 6, 5), (5, 5, 1, 5, 4, 5), strict=True)
    ]
    assert [(job.enqueued_at_ms, job.attempts_allowed) for job in jobs] == [
        (7, 5),
        (7, 5),
        (7, 3),
        (7, 5),
        (7, 4),
        (8, 5),
    ]
    assert {(job.body, job.claim_descriptor, job.claim_expires_at_ms) for job in jobs} == {(b"body", "claim", 99)}


def test_a_run_after_that_all_jobs_share_is_told_once() -> None:
    assert enqueue_args([Job(b"a"), Job(b"b")], NOW_MS)[0][:4] == [1, 1, 2, NOW_MS]
    later = [Job(b"a", run_after_ms=NOW_MS + 1), Job(b"b", run_after_ms=NOW_MS + 1)]
    assert len(enqueue_args(later, NOW_MS)[0]) == 4 + 2
    assert enqueue_args([later[0], Job(b"b")], NOW_MS)[0][-2:] == [NOW_MS + 1, NOW_MS]


def test_acks_of_one_kind_are_told_once() -> None:
    acks = [AckRequest(1, number, True, claim_descriptor="a:1:2:3:w") for number in range(100)]
    assert len(ack_args(Acks.of(acks), 0)) == len(ack_args(Acks.of(acks[:1]), 0))
    two = ack_args(Acks.of([AckRequest(1, 1, True), AckRequest(1, 2, False), AckRequest(1, 3, True)]), 0)
    assert two[-2] == b"\x00\x00\x00\x01\x00\x00"
