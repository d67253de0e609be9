"""Acks by descriptor, grouped for the shards."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pinlater.backends.acks import Acks
from pinlater.backends.base import AckOutcome, AckRequest
from pinlater.errors import RequestInvalid
from pinlater.model import MAX_TIME_MS, Ack, parse_descriptor
from pinlater.service.descriptors import DescriptorParser
from pinlater.service.job_lifecycle import requeue_times
from pinlater.service.validation import EntryErrors

NOW_MS = 1_790_000_000_000
FIRST = NOW_MS * 1000

WRONG = ["", "1", "001", "mail:s1:p1:", "mail:s1:p1:001", "mail:s1:p1:179000000000000x", f"mail:s1:p1:{FIRST} "]
MALFORMED = ["", "1", "001", "mail:s1:p1:", "mail:s1:p1:179000000000000x", f"mail:s1:p1:{FIRST} "]
"""The others of these are as the classic server makes them, whose ids are shorter."""
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
    errors = EntryErrors()
    groups = DescriptorParser().acks("mail", succeeded, failed, NOW_MS, errors)
    assert {shard: list(group) for shard, group in groups.items()} == expected
    assert errors.count == sum(ack.descriptor in MALFORMED for ack in (*succeeded, *failed))


def test_texts_that_begin_alike_are_read_to_their_end() -> None:
    good = f"mail:s1:p1:{FIRST}"
    wrong = [f"{good[:-3]}{end}" for end in ("", "0", "00", " 01", "+01", "0_1", "0x1", "\u0660\u0660\u0661", "0001")]
    errors = EntryErrors()
    groups = DescriptorParser().acks("mail", [Ack(good), *map(Ack, wrong), Ack(good[:-1] + "7")], [], NOW_MS, errors)
    assert errors.count == 5
    for text in wrong:  # right behind one that it begins like
        errors = EntryErrors()
        assert len(DescriptorParser().acks("mail", [Ack(good), Ack(text)], [], NOW_MS, errors)["1"]) == 1
        assert errors.count == (not text.rpartition(":")[2].isdecimal() or not text.isascii())
    assert [ack.id for ack in groups["1"]] == [FIRST, FIRST + 7]


def test_a_delay_is_checked_wherever_it_stands_and_one_below_zero_is_none() -> None:
    good = Ack(f"mail:s1:p1:{FIRST}")
    for delay_ms, delays in ((-1, [0, 0, 0]), (-(2**63), [0, 0, 0]), (5, [0, 5, 0]), (MAX_TIME_MS, [0, 0])):
        errors = EntryErrors()
        failed = [good, replace(good, retry_delay_ms=delay_ms), good]
        assert [
            ack.retry_delay_ms for ack in DescriptorParser().acks("mail", [], failed, NOW_MS, errors)["1"]
        ] == delays
        assert errors.count == 3 - len(delays)


def test_what_was_not_carried_out_is_told_at_a_bounded_length() -> None:
    errors = EntryErrors()
    DescriptorParser().acks("mail", [Ack("x" * 10_000)] * 1_000, [], NOW_MS, errors)
    error = errors.summary("acks", 1_002, acks_applied=True)
    assert isinstance(error, RequestInvalid)
    assert error.message.startswith("1000 of 1002 acks were not carried out, all others were: jobDescriptor is 'xxx")
    assert error.message.endswith("; and 995 more")
    assert len(error.message) < 2_000


@given(st.lists(acks, max_size=8), st.lists(acks, max_size=8))
def test_outcomes_come_back_in_the_order_of_the_acks(succeeded: list[Ack], failed: list[Ack]) -> None:
    refs, outcome_of = DescriptorParser(), {}
    by_shard: dict[str, list[AckOutcome]] = {}
    for shard, group in refs.acks("mail", succeeded, failed, NOW_MS, EntryErrors()).items():
        by_shard[shard] = [AckOutcome.SUCCEEDED if ack.id % 2 else AckOutcome.RETRIED for ack in group]
    for ack in (*succeeded, *failed):
        ref = parse_descriptor(ack.descriptor)
        is_known = ref is not None and ref.queue == "mail"
        outcome_of[ack.descriptor] = AckOutcome(2 - ref.id % 2) if is_known and ref else AckOutcome.IGNORED
    expected = [outcome_of[ack.descriptor] for ack in (*succeeded, *failed)]
    assert refs.outcomes("mail", [*succeeded, *failed], by_shard) == expected


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
    assert requeue_times(Acks.of(acks), outcomes, NOW_MS) == (2, [NOW_MS + 9])
