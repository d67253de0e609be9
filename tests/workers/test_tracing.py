"""The trace that a job belongs to."""

from __future__ import annotations

import asyncio
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater_workers import testing
from pinlater_workers.app import App
from pinlater_workers.tracing import Trace, current_trace, new_trace, read_trace, use_trace, write_trace

TRACE = Trace("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7")
HEADER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
app = App(servers=["127.0.0.1:1"])


@app.job(queue="tested")
def outer() -> None:
    inner.enqueue()


@app.job(queue="tested")
async def outer_coroutine() -> None:
    await inner.enqueue_async()


@app.job(queue="tested")
def inner() -> Trace | None:
    return current_trace()


def test_reads_and_writes_the_header_of_the_standard() -> None:
    assert read_trace({"traceparent": HEADER}) == TRACE
    assert TRACE.traceparent == HEADER
    assert read_trace({"traceparent": HEADER, "tracestate": "a=1"}) == Trace(TRACE.trace_id, TRACE.span_id, "01", "a=1")
    assert read_trace({"traceparent": HEADER.replace("00-", "cc-", 1) + "-what-comes"}) == TRACE
    assert read_trace({}) is None


@pytest.mark.parametrize(
    "header",
    [
        "",
        "trace",
        HEADER.upper(),
        HEADER[:-1],
        HEADER + "-more",
        HEADER.replace("00-", "ff-", 1),
        HEADER.replace("4bf92f3577b34da6a3ce929d0e0e4736", "0" * 32),
        HEADER.replace("00f067aa0ba902b7", "0" * 16),
        HEADER + "\n",
    ],
)
def test_what_is_not_well_formed_counts_as_none(header: str) -> None:
    assert read_trace({"traceparent": header}) is None


@given(st.text())
def test_no_header_is_an_error(header: str) -> None:
    read_trace({"traceparent": header})


def test_a_child_is_another_span_of_the_same_trace() -> None:
    trace = new_trace()
    child = trace.child()
    assert child.trace_id == trace.trace_id
    assert child.span_id != trace.span_id
    assert re.fullmatch("00-[0-9a-f]{32}-[0-9a-f]{16}-01", child.traceparent)
    assert new_trace().trace_id != trace.trace_id


def test_use_trace_counts_within_its_block() -> None:
    assert current_trace() is None
    with use_trace(TRACE):
        assert current_trace() == TRACE
        with use_trace(None):
            assert current_trace() is None
        assert current_trace() == TRACE
    assert current_trace() is None


def test_headers_get_a_new_span_of_the_current_trace_unless_they_name_one() -> None:
    headers: dict[str, str] = {}
    write_trace(headers)
    assert headers == {}
    with use_trace(Trace(TRACE.trace_id, TRACE.span_id, "00", "a=1")):
        write_trace(headers)
        written = read_trace(headers)
        assert written is not None
        assert (written.trace_id, written.flags, written.state) == (TRACE.trace_id, "00", "a=1")
        assert written.span_id != TRACE.span_id
        before = dict(headers)
        write_trace(headers)
        assert headers == before


@pytest.mark.parametrize("job", [outer, outer_coroutine])
def test_what_a_job_enqueues_continues_its_trace(job: testing.JobType) -> None:
    with testing.in_memory(app) as jobs:
        with use_trace(TRACE):
            job.enqueue()
        jobs.run_all()
    first, second = jobs.runs
    traces = [TRACE, read_trace(first.headers), read_trace(second.headers)]
    assert {trace.trace_id for trace in traces if trace} == {TRACE.trace_id}
    assert len({trace.span_id for trace in traces if trace}) == 3
    assert second.result == traces[2]
    assert current_trace() is None


def test_a_job_without_a_trace_runs_without_one_whatever_its_worker_has() -> None:
    with testing.in_memory(app) as jobs:
        inner.enqueue()
        outer_coroutine.enqueue()
        with use_trace(TRACE):
            asyncio.run(jobs.run_all_async())
    assert [run.result for run in jobs.runs] == [None, None, None]
    assert [run.headers for run in jobs.runs] == [{}, {}, {}]
