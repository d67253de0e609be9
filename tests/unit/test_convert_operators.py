"""The calls for operators through the wire and back, by random values."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.errors import RequestInvalid
from pinlater.model import (
    AuditEntry,
    Changed,
    ClusterStatus,
    JobAction,
    JobChange,
    JobInfo,
    JobsChanged,
    JobState,
    LevelView,
    PauseView,
    ProcessCounters,
    QueueStatus,
    QueueView,
    ServerView,
    SettingView,
    ShardView,
    WorkerInfo,
    WorkerJobInfo,
    WorkersPage,
)
from pinlater.model.job_selection import FoundJobs, FoundJobsChange, JobPhase, JobSelection, TextCondition
from pinlater.wire import convert_found_jobs, convert_operators
from pinlater.wire.message import Protocol, WireLimits
from tests.unit.test_convert import answered, limits, number, protocols, text, through, time_ms

count = st.integers(0, 2**63 - 1)
texts = st.lists(text, max_size=3)
levels = st.builds(LevelView, st.integers(1, 10), count, count, count, count, count, st.none() | time_ms)
rates = st.dictionaries(text, st.floats(0, 1e6), max_size=3)
pauses = st.none() | st.builds(PauseView, text, text, st.none() | time_ms, st.none() | time_ms)
queues = st.builds(QueueStatus, text, time_ms, st.lists(levels, max_size=3), rates, texts, pauses)
shards = st.builds(
    ShardView,
    text,
    text,
    text,
    st.booleans(),
    text,
    number,
    number,
    time_ms,
    st.none() | time_ms,
    text,
    st.none() | count,
    st.none() | time_ms,
)
servers = st.builds(
    ServerView, text, text, text, time_ms, time_ms, st.booleans(), text, texts, texts, st.none() | count
)
numbers = st.lists(count, min_size=5, max_size=5).map(tuple)
counters = st.builds(ProcessCounters, text, time_ms, time_ms, st.dictionaries(text, numbers, max_size=3), st.booleans())
statuses = st.builds(
    ClusterStatus,
    time_ms,
    st.lists(servers, max_size=2),
    st.lists(shards, max_size=2),
    st.lists(queues, max_size=2),
    text,
    st.none() | st.lists(counters, max_size=2),
)
views = st.builds(QueueView, text, text, st.dictionaries(text, st.builds(SettingView, text, text), max_size=4))
changes = st.builds(
    JobChange,
    text,
    st.sampled_from(JobAction),
    st.none() | st.sampled_from(JobState),
    st.none() | st.integers(-128, 127),
    st.none() | time_ms,
    st.none() | time_ms,
    text,
    number,
    st.booleans(),
    st.none() | number,
    st.none() | time_ms,
    text,
)


@given(protocols, limits, changes)
def test_changes_to_jobs(protocol: Protocol, wire_limits: WireLimits, sent: JobChange) -> None:
    request = convert_operators.change_jobs_to_wire(sent)
    args = through("changeJobs", protocol, wire_limits, 1, request=request)
    assert convert_operators.job_change_from_wire(args.request) == sent


conditions = st.lists(st.builds(TextCondition, text, st.booleans()), max_size=2)
selections = st.builds(
    JobSelection,
    text,
    st.none() | st.lists(st.sampled_from(JobPhase), max_size=3),
    st.none() | st.lists(st.integers(-128, 127), max_size=2),
    conditions,
    conditions,
    *[st.none() | time_ms] * 6,
    st.none() | number,
    st.none() | number,
    st.none() | text,
    st.none() | text,
    st.none() | st.lists(text.filter(bool), max_size=3),
)
found_changes = st.builds(
    FoundJobsChange,
    selections,
    st.sampled_from(JobAction),
    number,
    st.booleans(),
    st.none() | number,
    st.none() | time_ms,
    st.booleans(),
    st.none() | number,
    st.booleans(),
    text,
    text,
)


@given(protocols, limits, selections, number, st.booleans(), st.none() | number, text)
def test_searches(
    protocol: Protocol,
    wire_limits: WireLimits,
    sent: JobSelection,
    limit: int,
    with_body: bool,
    max_ms: int | None,
    continuation: str,
) -> None:
    request = convert_found_jobs.search_to_wire(sent, limit, with_body, max_ms, continuation)
    got = through("searchJobs", protocol, wire_limits, 1, request=request).request
    read = convert_found_jobs.selection_from_wire(got.selection)
    assert read.selects_nothing if sent.selects_nothing else read == sent
    assert sent.selects_nothing is (got.selection.descriptors == [""])  # older servers take an empty list for all
    assert (got.limit, got.include_body or False, got.max_ms) == (limit, with_body, max_ms)
    assert got.continuation == continuation


@given(protocols, limits, found_changes)
def test_changes_to_what_a_search_finds(protocol: Protocol, wire_limits: WireLimits, sent: FoundJobsChange) -> None:
    request = convert_found_jobs.change_found_jobs_to_wire(sent)
    args = through("changeFoundJobs", protocol, wire_limits, 1, request=request)
    read = convert_found_jobs.found_jobs_change_from_wire(args.request)
    if sent.selection.selects_nothing:
        assert read.selection.selects_nothing
        sent.selection = read.selection
    assert read == sent


@given(protocols, limits, count, text, texts)
def test_what_a_search_found(
    protocol: Protocol, wire_limits: WireLimits, looked_at: int, continuation: str, missing: list[str]
) -> None:
    job = JobInfo("q:s1:p2:1790000000000001", JobState.FAILED, 2, 3, 0, "why", 5, 6, 7, "h:1:2:3:me", 8, 9, 10, 2)
    found = FoundJobs([job], looked_at, continuation, missing)
    answer = answered("searchJobs", protocol, wire_limits, convert_found_jobs.found_jobs_to_wire(found))
    assert convert_found_jobs.found_jobs_from_wire(answer) == found


def test_a_phase_that_is_none_is_refused() -> None:
    request = convert_found_jobs.search_to_wire(JobSelection("q"), 1, False, None, "0")
    request.selection.phases = [7]
    with pytest.raises(RequestInvalid, match="a phase is 7"):
        convert_found_jobs.selection_from_wire(request.selection)


@given(protocols, limits, st.integers(0, 2**31 - 1), texts)
def test_what_a_change_did(protocol: Protocol, wire_limits: WireLimits, changed: int, missing: list[str]) -> None:
    job = JobInfo("q:s1:p2:1790000000000001", JobState.FAILED, 2, 3, 0, "why", 5, 6, 7, "h:1:2:3:me", 8, 9, 10, 2)
    job.origin, job.moved_to = "a:s1:p2:1790000000000000", "b:s1:p2:1790000000000002"
    result = JobsChanged(changed, changed, [job], "more", missing, {}, changed)
    assert convert_operators.jobs_changed_from_wire(answered("changeJobs", protocol, wire_limits, result)) == result


@given(protocols, limits, statuses)
def test_the_state_of_a_cluster(protocol: Protocol, wire_limits: WireLimits, status: ClusterStatus) -> None:
    answer = answered("getClusterStatus", protocol, wire_limits, status)
    assert convert_operators.status_from_wire(answer) == status


@given(protocols, limits, st.none() | texts, st.none() | time_ms)
def test_which_queues_the_state_is_asked_of(
    protocol: Protocol, wire_limits: WireLimits, names: Any, since_ms: int | None
) -> None:
    request = convert_operators.status_to_wire(names, since_ms)
    args = through("getClusterStatus", protocol, wire_limits, 1, request=request)
    assert (args.request.queue_names, args.request.counters_since_ms) == (names, since_ms)


@given(protocols, limits, st.lists(views, max_size=3))
def test_queues_and_their_settings(protocol: Protocol, wire_limits: WireLimits, sent: list[QueueView]) -> None:
    answer = answered("getQueues", protocol, wire_limits, convert_operators.queues_to_wire(sent))
    assert convert_operators.queues_from_wire(answer) == sent


@given(protocols, limits, text, text, st.dictionaries(text, text, max_size=3), texts, st.booleans())
def test_changes_of_settings(
    protocol: Protocol,
    wire_limits: WireLimits,
    name: str,
    password: str,
    settings: dict[str, str],
    unset: list[str],
    create: bool,
) -> None:
    request = convert_operators.update_queue_to_wire(name, password, settings, unset, create)
    read = through("updateQueue", protocol, wire_limits, 1, request=request).request
    assert (read.queue_name, read.password, read.create) == (name, password, create)
    assert (read.settings or {}, read.unset or []) == (settings, unset)


@given(protocols, limits, text, texts)
def test_what_missed_a_change(protocol: Protocol, wire_limits: WireLimits, version: str, missed: list[str]) -> None:
    answer = answered("updateQueue", protocol, wire_limits, Changed(version, missed))
    assert convert_operators.changed_from_wire(answer) == Changed(version, missed)


@given(protocols, limits, st.lists(st.builds(AuditEntry, time_ms, text, text, text, text, text), max_size=3))
def test_the_audit(protocol: Protocol, wire_limits: WireLimits, entries: list[AuditEntry]) -> None:
    answer = answered("getAudit", protocol, wire_limits, convert_operators.audit_to_wire(entries))
    assert convert_operators.audit_from_wire(answer) == entries


natural = st.integers(0, 2**31 - 1)
worker_infos = st.builds(
    WorkerInfo,
    text,
    text,
    text,
    natural,
    st.dictionaries(text, natural, max_size=3),
    natural,
    natural,
    natural,
    st.lists(st.builds(WorkerJobInfo, text, text, time_ms), max_size=3),
    st.none() | time_ms,
    st.dictionaries(text, text, max_size=3),
    st.booleans(),
    time_ms,
    time_ms,
    st.none() | time_ms,
)


@given(
    protocols,
    limits,
    st.builds(
        WorkersPage, time_ms, st.lists(worker_infos, max_size=3), natural, time_ms, time_ms, time_ms, text, texts
    ),
)
def test_the_list_of_workers(protocol: Protocol, wire_limits: WireLimits, page: WorkersPage) -> None:
    assert convert_operators.workers_from_wire(answered("getWorkers", protocol, wire_limits, page)) == page


@given(protocols, limits, text, text, st.booleans(), text, natural)
def test_what_is_asked_of_the_list(
    protocol: Protocol, wire_limits: WireLimits, queue: str, name: str, running: bool, continuation: str, limit: int
) -> None:
    request = convert_operators.get_workers_to_wire(queue, name, running, continuation, limit)
    read = through("getWorkers", protocol, wire_limits, 1, request=request).request
    assert (read.queue_name or "", read.name or "", read.include_running) == (queue, name, running)
    assert (read.continuation, read.limit) == (continuation, limit)


def test_an_action_that_does_not_exist_is_an_invalid_request() -> None:
    request = convert_operators.change_jobs_to_wire(JobChange("mail", JobAction.RETRY))
    request.action = 9
    with pytest.raises(RequestInvalid, match="REPLAY 3"):
        convert_operators.job_change_from_wire(request)
