"""A fault of a request is its caller's: it is refused for good, in words, and nobody else notices."""

from __future__ import annotations

import re

import httpx

from pinlater.wire.methods import METHODS
from tests.extremes.calls import ROWS
from tests.extremes.sending import WITHIN_S, Sent

OF_REQUESTS = frozenset({"BODY_TOO_LARGE", "REQUEST_INVALID", "QueueNotFound"})
"""What a store that is well may answer, as the metrics call it."""


def test_every_call_has_its_row() -> None:
    assert set(ROWS) == set(METHODS)


def test_what_cannot_be_carried_out_is_refused_for_good(sent: Sent) -> None:
    assert not sent.broken, "\n".join(sent.broken[:50])
    retryable = [
        f"{call}: {error.message[:300]}"
        for call, error in sent.refused
        if error.retryable and not (error.reason == "OVERLOADED" and call.path[-1] == "password")  # a guess in a pause
    ]
    assert not retryable, "\n".join(retryable[:50])
    wordless = [
        f"{call}: {error.message[:300]}"
        for call, error in sent.refused
        if error.reason in ("", "UNKNOWN", "SHARD_CONNECTION_FAILED") or "Error" in error.message
    ]
    assert not wordless, "\n".join(wordless[:50])


def test_no_fault_of_a_request_counts_against_its_shard(sent: Sent) -> None:
    (shard,) = sent.client.cluster_status().shards
    assert (shard.state, shard.trouble, shard.good) == ("in", "", shard.samples)
    where = str(sent.server.wait_for("http_ready")["address"]).rstrip("/")
    metrics = httpx.get(f"{where}/metrics", timeout=WITHIN_S, trust_env=False).text
    errors = set(re.findall(r'^pinlater_shard_call_errors\S*\{.*error="(\w+)"', metrics, re.MULTILINE))
    assert errors <= OF_REQUESTS
