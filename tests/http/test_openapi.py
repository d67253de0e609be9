"""The OpenAPI document, as generators of clients read it; and claimed jobs, which go into acks as they came."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from pinlater.http.openapi import openapi_document
from tests.http.calls import Caller


def _parts(part: Any, at: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(part, dict):
        yield at, part
    for name, each in part.items() if isinstance(part, dict) else enumerate(part) if isinstance(part, list) else ():
        yield from _parts(each, f"{at}/{name}")


def test_every_enum_is_a_component_with_a_name_of_the_model() -> None:
    document = openapi_document()
    enums = {at: part["enum"] for at, part in _parts(document) if "enum" in part}
    schemas = document["components"]["schemas"]
    assert set(enums) == {f"/components/schemas/{name}" for name, each in schemas.items() if "enum" in each}
    assert len({frozenset(words) for words in enums.values()}) == len(enums) > 20, "each stands once"
    assert schemas["Encoding"]["enum"] == ["text", "json", "base64"]
    assert schemas["JobState"]["enum"] == ["pending", "in_progress", "succeeded", "failed"]


def test_every_reference_is_there_and_every_enum_is_used() -> None:
    document = openapi_document()
    used = {part["$ref"].removeprefix("#/components/schemas/") for _, part in _parts(document) if "$ref" in part}
    schemas = document["components"]["schemas"]
    assert used - {"#/components/responses/Problem"} <= set(schemas)
    assert {name for name, each in schemas.items() if "enum" in each} <= used


def test_a_default_and_a_description_stand_beside_the_enum_of_their_place() -> None:
    encoding = openapi_document()["components"]["schemas"]["DequeueForm"]["properties"]["encoding"]
    assert encoding["allOf"] == [{"$ref": "#/components/schemas/Encoding"}]
    assert encoding["default"] == "text"
    assert "How bodies" in encoding["description"]


@pytest.mark.parametrize("entry", ["ClaimedJobForm", "SuccessForm", "FailureForm", "HeartbeatForm"])
def test_entries_about_claims_take_every_field_of_a_claimed_job(entry: str) -> None:
    schemas = openapi_document()["components"]["schemas"]
    job, form = schemas["DequeuedJobAnswer"], schemas[entry]
    assert set(form["required"]) <= set(job["required"])
    if entry != "ClaimedJobForm":  # which takes any field
        assert set(job["properties"]) <= set(form["properties"])


def test_a_claimed_job_is_heartbeaten_failed_and_acked_as_it_came(caller: Caller, queue: str) -> None:
    caller.done("POST", f"/v1/queues/{queue}/jobs/batch", {"jobs": [{"body": str(number)} for number in range(3)]})
    jobs = caller.done("POST", f"/v1/queues/{queue}/dequeue", {"limit": 3, "wait_ms": 20_000})["jobs"]
    beats = [{**job, "fraction": 0.5} for job in jobs]
    answers = caller.done("POST", f"/v1/queues/{queue}/heartbeat", {"heartbeats": beats})["answers"]
    assert [each["outcome"] for each in answers] == ["ok"] * 3
    one, two, three = jobs
    acks = {
        "succeeded": [{**one, "result": "done"}],
        "jobs": [two],
        "failed": [{**three, "permanent": True, "append_status": "no"}],
    }
    outcomes = caller.done("POST", f"/v1/queues/{queue}/ack", acks)["outcomes"]
    assert outcomes == ["succeeded", "succeeded", "failed"]
    refused = caller.refused("POST", f"/v1/queues/{queue}/ack", {"failed": [{**three, "permanant": True}]})
    assert refused == (400, "REQUEST_INVALID", "failed[0].permanant")
