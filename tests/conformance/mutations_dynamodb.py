"""The conditions and guards of the store in DynamoDB, and the tests that fail without them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance import (
    test_ack_and_claim,
    test_claims,
    test_concurrency,
    test_corners,
    test_dead_letters,
    test_dedupe_keys,
    test_dynamodb_steps,
    test_expiry,
    test_fencing,
    test_identity,
    test_ids,
    test_kv,
    test_listed_expiry,
    test_one_failure,
    test_quotas,
    test_references,
    test_serialize_keys,
    test_undelivered,
)
from tests.conformance.mutation import Mutation

OVERTAKEN = test_corners.test_a_renewal_that_was_overtaken_takes_no_time_from_the_claim
IS_SEEN = test_corners.test_a_renewal_whose_clock_is_behind_that_of_the_claim_is_seen
OF_A_CLOCK_SET_BACK = test_corners.test_a_renewal_of_a_clock_that_was_set_back_counts_from_its_own_time


def here(module: str, old: str, new: str, test: Callable[..., Any], tries: int = 1, **given: Any) -> Mutation:
    return Mutation("dynamodb", module, old, new, test, given, tries=tries)


CONDITIONS = [
    here(
        "steps",
        'request["ConditionExpression"] = "attribute_not_exists(pk)"',
        "pass",
        test_dynamodb_steps.test_of_two_steps_that_make_an_item_the_second_loses,
    ),
    here(
        "steps",
        'request["ConditionExpression"] = "#v = :v"',
        'request["ConditionExpression"] = "attribute_exists(pk) OR #v = :v"',
        test_concurrency.test_of_many_acks_of_one_claim_exactly_one_is_taken,
        tries=5,
    ),
    here(
        "claims",
        '"ConditionExpression": "#o = :o AND (',
        '"ConditionExpression": "attribute_exists(pk) OR #o = :o AND (',
        test_concurrency.test_claimers_never_share_a_job_and_leave_none,
        tries=5,
    ),
    here(
        "table",
        '"ConditionExpression": "attribute_not_exists(#s) OR #s <= :f"',
        '"ConditionExpression": "attribute_not_exists(#s) OR attribute_exists(pk) OR #s <= :f"',
        test_dynamodb_steps.test_two_servers_that_choose_the_same_slot_share_no_number,
    ),
]

REQUIRED = [
    here(
        "steps",
        '            "ConditionExpression": "#v = :v",',
        '            "ConditionExpression": "attribute_exists(pk) OR attribute_not_exists(pk) OR #v = :v",',
        test_dynamodb_steps.test_a_step_that_requires_a_queue_writes_nothing_once_it_is_gone,
    ),
    here(
        "steps",
        'request | {"ConditionExpression": "attribute_not_exists(pk)"}',
        'request | {"ConditionExpression": "attribute_not_exists(pk) OR attribute_exists(pk)"}',
        test_dynamodb_steps.test_a_step_that_requires_the_homes_of_keys_writes_nothing_once_they_are_newer,
        is_known=False,
    ),
    here(
        "queue_records",
        "raise QueueNotFound.of(queue)\n        step.require(key)",
        "raise QueueNotFound.of(queue)",
        test_dynamodb_steps.test_a_step_that_requires_a_queue_writes_nothing_once_it_is_gone,
    ),
    here(
        "queue_records",
        "raise HomesChanged.of_store()\n            step.require(key)",
        "raise HomesChanged.of_store()",
        test_dynamodb_steps.test_a_step_that_requires_the_homes_of_keys_writes_nothing_once_they_are_newer,
        is_known=True,
    ),
    here(
        "queue_records",
        '                "ConditionExpression": "attribute_exists(pk)",',
        '                "ConditionExpression": "attribute_exists(pk) OR attribute_not_exists(pk)",',
        test_dynamodb_steps.test_a_priority_is_noted_only_of_a_queue_that_is_there,
    ),
    here(
        "table",
        '            "ConditionExpression": "attribute_not_exists(pk)",',
        '            "ConditionExpression": "attribute_not_exists(pk) OR attribute_exists(pk)",',
        test_identity.test_servers_that_open_a_new_store_at_once_agree_on_its_id,
        tries=20,
    ),
]

CLAIMS = [
    here("claims", "step.touch(quota_key(qid))", "pass", test_quotas.test_claims_at_once_fill_the_quota_exactly, 5),
    here(
        "claims",
        "ended = step.claims_ended()",
        "ended = 0",
        test_ack_and_claim.test_an_ack_frees_room_in_the_quota_for_the_claim_of_the_same_step,
    ),
    here(
        "claims",
        "if place and taken_bytes >= SLICE_BYTES:",
        "if False:",
        test_claims.test_once_a_slice_of_bodies_is_handed_out_no_further_request_is_looked_at,
    ),
    here(
        "claims",
        'f"{PENDING}{at(now_ms)}{LAST}", index',
        'f"{PENDING}{LAST}", index',
        test_claims.test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before,
    ),
    here(
        "table",
        "candidate = self._in_slot(max(self._next, now_ms * 1_000, LEAST_ID))",
        "candidate = self._in_slot(max(now_ms * 1_000, LEAST_ID))",
        test_ids.test_ids_go_on_ascending_when_the_clock_goes_back,
    ),
]

ENDS = [
    here(
        "attempt_steps",
        'request.claim_descriptor not in ("", job.claim)',
        "False",
        test_fencing.test_an_ack_with_another_claim_is_ignored,
        succeeded=True,
    ),
    here(
        "attempt_steps",
        "job.last_seen_ms != claim.last_seen_ms",
        "False",
        test_concurrency.test_a_checkpoint_against_a_release_has_one_winner,
        tries=5,
    ),
    here(
        "stored_job",
        "max(expires_at_ms, (self.expires_at_ms or 0) + 1)",
        "expires_at_ms",
        OVERTAKEN,
        way=test_corners.heartbeat,
        behind_ms=1,
    ),
    here(
        "stored_job",
        "= last_ms + 1, max(",
        "= last_ms, max(",
        IS_SEEN,
        way=test_corners.checkpoint,
    ),
    here(
        "stored_job",
        "if earliest_ms <= last_ms <= latest_ms:",
        "if earliest_ms <= last_ms:",
        OF_A_CLOCK_SET_BACK,
        way=test_corners.heartbeat,
    ),
    here(
        "attempt_steps",
        "if times > UNDELIVERED_IN_A_ROW:",
        "if False:",
        test_undelivered.test_so_often_in_a_row_and_then_its_claims_expire_as_any_other,
    ),
    here(
        "due_work",
        "if rules.get(queue).lists_expired:",
        "if False:",
        test_listed_expiry.test_a_queue_that_lists_its_claims_keeps_them_from_expiring,
    ),
    here(
        "due_work",
        "(job.expires_at_ms or 0) >= now_ms:",
        "False:",
        test_concurrency.test_a_checkpoint_against_expiry_has_one_winner,
        tries=5,
    ),
    here(
        "due_work",
        "if job is None or not job.is_dead_letter_pending:",
        "if job is None:",
        test_dead_letters.test_steps_at_once_copy_each_job_once,
        tries=5,
    ),
    here(
        "stored_job",
        "kind = DEAD_LETTER if self.is_dead_letter_pending else str(self.state)",
        "kind = str(self.state)",
        test_dead_letters.test_acks_of_one_call_become_pending_one_by_one,
    ),
    here(
        "operators",
        "if letter.state not in GOES or letter.moved_to is not None:",
        "if False:",
        test_one_failure.test_a_job_whose_letter_runs_or_succeeded_stays_as_it_is,
        state="WITH ITS OWN",
        listed=True,
    ),
    here(
        "operators",
        "if ref is None or ref.shard != store.identity.shard_id:",
        "if ref is None:",
        test_one_failure.test_a_letter_that_went_to_another_shard_is_never_taken_for_deleted,
    ),
    here(
        "operators",
        " if marks_originals else None",
        "",
        test_one_failure.test_without_marks_the_job_stays_as_servers_before_know_it,
    ),
    here(
        "operators",
        "if job is None or job.state not in (FAILED, CANCELLED):",
        "if job is None:",
        test_one_failure.test_a_replayed_job_is_left_out_of_every_retry,
    ),
]

KEYS = [
    here(
        "key_items",
        'return bool(entry.get("until", MAX_TIME_MS + 1) > now_ms)',
        'return bool(entry.get("until", MAX_TIME_MS + 1) >= now_ms)',
        test_dedupe_keys.test_a_window_begins_at_the_end,
    ),
    here(
        "key_items",
        'job.place, job.state = int(chain["next"]), WAITING',
        'job.place = int(chain["next"])',
        test_serialize_keys.test_they_are_handed_out_one_at_a_time_in_order,
    ),
    here(
        "steps",
        'if item is not None and item.get("t"):',
        "if False:",
        test_references.test_cancelling_drops_it,
    ),
    here(
        "coordination",
        "if expected_version not in (None, version):",
        "if False:",
        test_kv.test_a_write_that_expects_another_version_changes_nothing,
        kind="kind",
    ),
    here(
        "due_work",
        "if job is None or job.is_live or job.is_dead_letter_pending:",
        "if job is None:",
        test_concurrency.test_pruning_against_an_operators_retry_has_one_winner,
        tries=10,
    ),
]
EXPIRY = [
    here(
        "agenda",
        "return AgendaMark(kind, partition, (time_ms // span_ms + 1) * span_ms)",
        "return AgendaMark(kind, partition, (time_ms // span_ms + 3) * span_ms)",
        test_expiry.test_a_claim_expires_only_after_its_time_out,
    ),
]
DYNAMODB = [*CONDITIONS, *REQUIRED, *CLAIMS, *ENDS, *KEYS, *EXPIRY]
