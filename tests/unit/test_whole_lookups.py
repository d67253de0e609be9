"""Lookups in several calls, as the server's own bound of an answer cuts them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pinlater.client.whole_lookups import complete
from pinlater.model import JobInfo, JobState
from pinlater.service.job_queries import fit_values

ANSWER_BYTES = 1_000_000


def info_of(name: str, body: bytes | None, result: bytes | None) -> JobInfo:
    state = JobState.PENDING if result is None else JobState.SUCCEEDED
    return JobInfo(name, state, 1, 1, 1, "", 0, 0, 0, body=body, result=result)


async def test_kept_results_of_jobs_that_are_gone_keep_no_body_back() -> None:
    """They have no body, which nobody left out."""
    stored = {f"gone-{number}": info_of(f"gone-{number}", None, bytes(65_536)) for number in range(60)}
    stored["large"] = info_of("large", bytes(900_000), None)
    calls = []

    async def look(names: Sequence[str], with_body: bool, with_result: bool) -> Mapping[str, JobInfo]:
        calls.append(len(names))
        answer = [replace(stored[name], body=stored[name].body if with_body else None) for name in names]
        fit_values(answer, ANSWER_BYTES)
        return {each.descriptor: each for each in answer}

    found = dict(await look(list(stored), True, True))
    assert sum(bool(each.body_left_out or each.result_left_out) for each in found.values()) > 40
    await complete(found, True, True, look)
    assert found == stored
    assert len(calls) <= 7
