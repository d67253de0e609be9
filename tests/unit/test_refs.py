"""Acks by descriptor, grouped for the shards."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckOutcome, AckRequest
from pinlater.errors import RequestInvalid
from pinlater.model import MAX_TIME_MS, Ack, parse_descriptor
from pinlater.service.outcomes import retries
from pinlater.service.refs import References

NOW_MS = 1_790_000_000_000
FIRST = NOW_MS * 1000

WRONG = ["", "1", "001", "mail:s1:p1:", "mail:s1:p1:001", "mail:s1:p1:179000000000000x", f"mail:s1:p1:{FIRST} "]
descriptors = st.sampled_from(WRONG) | st.builds(
    "{}:s{}:p{}:{}".format, st.sampled_from(["mail", "other"]), st.integers(1, 2), st.integers(1, 2), st.integers(0, 3)
).map(lambda text: text[:-1] + str(FIRST + 998 + int(text[-1])))
requests = st.builds(AckRequest, st.integers(1, 2), st.integers(1, 3), st.booleans(), st.sampled_from(["", "a"]))
acks = st.builds(Ack, descriptors, st.sampled_from(["", "a"]), st.sampled_from([0, 5]), st.sampled_from(["", "c"]))


@given(st.lists(acks, max_size=8), st.lists(acks, max_size=8))
def test_every_ack_reaches_its_shard_as_it_was_told(succeeded: list[Ack], failed: list[Ack]) -> None:
    expected: dict[str, list[AckRequest]] = {}
    for ack, is_good in [(ack, True) for ack in succeeded] + [(ack, False) for ack in failed]:
        ref = parse_descriptor(ack.descriptor)
        if ref is not None and ref.queue == "mail":
            request = AckRequest(
                ref.priority, ref.id, is_good, ack.append_status, ack.retry_delay_ms, ack.claim_descriptor
            )
            expected.setdefault(ref.shard, []).append(request)
    groups = References().acks("mail", succeeded, failed, NOW_MS)
    assert {shard: list(group) for shard, group in groups.items()} == expected


def test_texts_that_begin_alike_are_read_to_their_end() -> None:
    good = f"mail:s1:p1:{FIRST}"
    wrong = [f"{good[:-3]}{end}" for end in ("", "0", "00", " 01", "+01", "0_1", "0x1", "\u0660\u0660\u0661", "0001")]
    groups = References().acks("mail", [Ack(good), *map(Ack, wrong), Ack(good[:-1] + "7")], [], NOW_MS)
    assert [ack.id for ack in groups["1"]] == [FIRST, FIRST + 7]


def test_a_delay_is_checked_wherever_it_stands() -> None:
    good = Ack(f"mail:s1:p1:{FIRST}")
    for delay_ms in (-1, MAX_TIME_MS):
        with pytest.raises(RequestInvalid):
            References().acks("mail", [], [good, Ack("none", retry_delay_ms=delay_ms), good], NOW_MS)


@given(st.lists(st.lists(requests, max_size=4), max_size=4))
def test_joined_acks_keep_their_order(several: list[list[AckRequest]]) -> None:
    joined = Acks.joined(several)
    everything = [ack for some in several for ack in some]
    assert (list(joined), len(joined)) == (everything, len(everything))
    assert joined.ids == [ack.id for ack in everything]
    assert joined.has_failures == any(not ack.succeeded for ack in everything)
    assert list(joined[1:]) == everything[1:]


def test_jobs_that_are_retried_are_counted_by_when() -> None:
    acks = [AckRequest(1, number, False, retry_delay_ms=delay) for number, delay in enumerate((0, 0, 9, 9, 0))]
    outcomes = [AckOutcome(number) for number in (2, 3, 2, 0, 2)]
    assert retries(Acks.of(acks), outcomes, NOW_MS) == (2, [NOW_MS + 9])
