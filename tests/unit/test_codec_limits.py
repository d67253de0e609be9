"""The bounds on one message leave room for the largest that is meant, and stop the worst that is not."""

from __future__ import annotations

import pytest

from pinlater.client.pool import ANSWER_LIMITS
from pinlater.config.loader import load
from pinlater.model import MAX_TAGS, Ack, Job, JobInfo, JobProgress, JobState, RequestContext
from pinlater.server.limits import ServerLimits
from pinlater.service.settings import ServiceSettings
from pinlater.wire import convert
from pinlater.wire.codec import decode_call, decode_reply, encode_call, encode_reply
from pinlater.wire.convert import call_args
from pinlater.wire.interface import LAYOUTS
from pinlater.wire.message import Protocol, WireError, WireLimits
from pinlater.wire.methods import LOOKUP
from pinlater.wire.operator_methods import UPDATE_QUEUE
from pinlater.wire.validator import CompactValidator

EACH_PROTOCOL = pytest.mark.parametrize("protocol", [Protocol.BINARY, Protocol.COMPACT])
REQUESTS, ANSWERS = ServerLimits().wire(), ANSWER_LIMITS
MOST = ServiceSettings().max_jobs


@EACH_PROTOCOL
def test_a_request_may_hold_the_most_jobs_with_all_their_fields(protocol: Protocol) -> None:
    sent = [Job(b"body", 2, 1_790_000_000_000, 3, "status")] * MOST
    request = convert.enqueue_to_wire("mail", sent)
    data = encode_call("enqueueJobs", 1, call_args("enqueueJobs", RequestContext("me", "1"), request=request), protocol)
    assert len(data) > REQUESTS.walk_over_bytes
    assert len(decode_call(data, REQUESTS).args.request.jobs) == MOST


@EACH_PROTOCOL
def test_a_request_may_hold_the_most_acks_with_all_their_fields(protocol: Protocol) -> None:
    sent = [Ack("mail:s1:p1:1790000000000001", "why", 5_000, "h:1:2:3:me", permanent=True)] * MOST
    request = convert.acks_to_wire("mail", [], sent)
    args = call_args("ackDequeuedJobs", RequestContext("me", "1"), request=request)
    data = encode_call("ackDequeuedJobs", 1, args, protocol)
    assert len(decode_call(data, REQUESTS).args.request.failed) == MOST


def test_a_configuration_leaves_room_for_its_jobs_in_one_request() -> None:
    config = load({"max-jobs": "30000", "max-steps": "300000"}, {}).config
    assert (config.max_jobs, config.max_steps) == (30_000, 300_000)
    assert load({"max-steps": "1000"}, {}).config.max_jobs == 100


def test_an_answer_may_hold_the_most_jobs_with_all_that_is_known_of_them() -> None:
    descriptor = "mail:s1:p1:{}"
    known = {
        descriptor.format(number): JobInfo(
            descriptor.format(number),
            JobState.FAILED,
            1,
            2,
            0,
            "why",
            5,
            6,
            7,
            claim_descriptor="h:1:2:3:me",
            claimed_at_ms=8,
            claim_expires_at_ms=9,
            finished_at_ms=10,
            crashes=2,
            body=b"body",
            origin=descriptor.format(1),
            moved_to=descriptor.format(2),
            result=b"result",
            dedupe_key="user-1",
            serialize_key="account-2",
            cancelled=True,
            progress=JobProgress(0.5, "half", 11),
            waits_for=descriptor.format(3),
            expires_at_ms=12,
            claim_timeout_ms=13,
            cancel_requested_by="somebody",
            body_stored_at="s3::mail::1790000000000::0123456789abcdef (size, delay)",
            tags=[f"tenant:{tag}" for tag in range(MAX_TAGS)],
            group="acme",
        )
        for number in range(MOST)
    }
    reply = encode_reply("lookupJobs", 1, known)
    assert len(reply) > ANSWERS.walk_over_bytes
    found = LOOKUP.result(decode_reply(reply, ANSWERS).success)
    assert found == known
    fields = LAYOUTS.of("PinLaterJobInfo").fields.values()
    one = known[descriptor.format(3)]
    lacking = [field.name for field in fields if getattr(one, field.attribute) is None]  # else there is a larger one
    # in place of a body, a result and movedTo; a trail is for who asks for it; a job with a successor has not ended
    assert lacking == ["bodyLeftOut", "resultLeftOut", "replayedTo", "attempts", "logLines", "successor"]


@EACH_PROTOCOL
@pytest.mark.parametrize(("count", "is_too_many"), [(95, False), (100, True)])
def test_keys_and_values_count_as_elements_do(protocol: Protocol, count: int, is_too_many: bool) -> None:
    settings = {str(number): "x" for number in range(count)}
    request = UPDATE_QUEUE.request("mail", "secret", settings, [], False)
    data = encode_call("updateQueue", 1, call_args("updateQueue", RequestContext("me"), request=request), protocol)
    share = 1 if protocol is Protocol.BINARY else CompactValidator.share
    limits = WireLimits(walk_over_bytes=0, max_steps=int(200 / share))  # some fields are counted too
    if is_too_many:
        with pytest.raises(WireError, match="fields and elements in one message"):
            decode_call(data, limits)
    else:
        assert decode_call(data, limits).args.request.set == settings
