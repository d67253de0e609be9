"""The guards of the Lua scripts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinlater.model import CancelOutcome, JobState
from tests.conformance import (
    test_ack_and_claim,
    test_bodies,
    test_claims,
    test_corners,
    test_ended_jobs,
    test_expiry,
    test_fencing,
    test_identity,
    test_ids,
    test_queries,
    test_queues,
    test_states,
    test_status_text,
    test_undelivered,
    test_wrong_names,
)
from tests.conformance.mutation import Mutation
from tests.conformance.mutations_redis_cluster import CLUSTER
from tests.conformance.mutations_redis_keys import KEYS
from tests.conformance.subject import START_MS

OVERTAKEN = test_corners.test_a_renewal_that_was_overtaken_takes_no_time_from_the_claim
IS_SEEN = test_corners.test_a_renewal_whose_clock_is_behind_that_of_the_claim_is_seen
OF_A_CLOCK_SET_BACK = test_corners.test_a_renewal_of_a_clock_that_was_set_back_counts_from_its_own_time


def lua(script: str, old: str, new: str, test: Callable[..., Any], **given: Any) -> Mutation:
    return Mutation("redis", script, old, new, test, given)


_TELL_GROUPS = frozenset(
    {"claim", "ack_and_claim", "count_ready", "peek", "count", "delete_jobs", "delete_listed", "stats"}
)


def unknown_queue(script: str, call: str, root: str = "KEYS[1]") -> Mutation:
    """The look into the registry of queues, which also tells whether their jobs have groups."""
    guard = f"if redis.call('HEXISTS', {root} .. ':queues', ARGV[1]) == 0 then return false end"
    nothing = ""
    if script in _TELL_GROUPS:
        guard, nothing = "if not queue_entry then return false end", "queue_entry = queue_entry or ''"
    return lua(script, guard, nothing, test_queues.test_an_unknown_queue_is_refused_by, call=test_queues.REFUSED[call])


QUEUES = [
    unknown_queue("enqueue", "enqueue", "root"),
    unknown_queue("claim", "claim"),
    unknown_queue("ack_and_claim", "ack and claim"),
    unknown_queue("count_ready", "ready"),
    unknown_queue("peek", "peek"),
    unknown_queue("count", "count"),
    unknown_queue("retry_failed", "retry"),
    unknown_queue("delete_jobs", "delete"),
    unknown_queue("delete_listed", "delete listed"),
    lua(
        "scan",
        "if not queue_entry then return false end",
        "queue_entry = queue_entry or ''",
        test_queues.test_an_unknown_queue_is_refused_by,
        call=test_queues.REFUSED["scan"],
    ),
    unknown_queue("retry_listed", "retry listed"),
    unknown_queue("set_quota", "quota"),
    unknown_queue("replay", "replay"),
    unknown_queue("stats", "stats"),
    lua(
        "open",
        "if not (known[1] and known[2]) then",
        "if true then",
        test_identity.test_a_store_has_a_random_id_that_stays,
    ),
]

CLAIMS = [
    lua(
        "claim",
        "eligible(pending, page, now)",
        "eligible(pending, page, '+inf')",
        test_states.test_a_future_job_is_not_handed_out,
    ),
    lua(
        "claim",
        "eligible(pending, page, now)",
        "eligible(pending, page, '(' .. now)",
        test_claims.test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before,
    ),
    lua(
        "claim", "math.min(PAGE, left - taken)", "PAGE", test_claims.test_never_more_than_the_limit_over_all_priorities
    ),
    lua("claim", "left = left - taken", "", test_claims.test_never_more_than_the_limit_over_all_priorities),
    lua(
        "claim",
        "if room < 0 and o > 0 then break end",
        "",
        test_claims.test_bodies_handed_out_stay_within_the_bound_and_the_rest_stays_pending,
    ),
    lua(
        "claim",
        "while at <= #ARGV and given < SLICE_BYTES do",
        "while at <= #ARGV do",
        test_claims.test_once_a_slice_of_bodies_is_handed_out_no_further_request_is_looked_at,
    ),
    lua("claim", "if room < 0 and o > 0", "if room < 0", test_claims.test_one_job_is_handed_out_however_large_it_is),
    lua(
        "claim", "'LT', string", "string", test_expiry.test_a_later_claim_that_lasts_longer_does_not_hide_an_earlier_one
    ),
    lua(
        "peek",
        "'-inf', ARGV[2]",
        "'-inf', '+inf'",
        test_claims.test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before,
    ),
    lua("peek", "math.min(PAGE, left)", "PAGE", test_claims.test_a_peek_keeps_its_bounds),
    lua("peek", "if room < 0 and #ids_out > 0 then break end", "", test_claims.test_a_peek_keeps_its_bounds),
    lua(
        "count_ready",
        "'-inf', ARGV[2]",
        "'-inf', '+inf'",
        test_claims.test_ready_counts_eligible_jobs_per_priority_up_to_the_limit,
    ),
    lua(
        "requeue",
        "if claim and sub(claim, DESCRIPTOR_AT) == ARGV[at + 2] then",
        "if claim then",
        test_wrong_names.test_a_job_under_another_claim_is_neither_requeued_nor_released,
    ),
    lua(
        "requeue",
        "call('ZSCORE', base .. ':s:1:' .. priority, id)",
        "call('ZSCORE', base .. ':s:1:' .. priority, id) or '5'",
        test_wrong_names.test_what_is_not_in_progress_is_neither_requeued_nor_released,
        state=JobState.SUCCEEDED,
    ),
]

ACKS = [
    lua(
        "ack",
        "(not kind.claim or holder == kind.claim)",
        "true",
        test_fencing.test_an_ack_with_another_claim_is_ignored,
        succeeded=True,
    ),
    lua("ack", "run_after[i], '0'", "run_after[i] or '5', '0'", test_fencing.test_an_ack_of_an_unknown_job_is_ignored),
    lua(
        "ack",
        "scores[i] = alike[ids[i]]",
        "scores[i] = score",
        test_fencing.test_many_jobs_that_are_acked_keep_their_run_after,
        odd_run_after_ms=START_MS - 5,
        missing=False,
    ),
    lua(
        "claim",
        "~= score then",
        "== false then",
        test_fencing.test_many_jobs_that_are_acked_keep_their_run_after,
        odd_run_after_ms=START_MS - 5,
        missing=False,
    ),
    lua("ack", "not done[id] and ", "", test_fencing.test_a_retried_job_named_twice_is_not_failed_twice),
    lua(
        "ack",
        "if group.priority == priority then",
        "if true then",
        test_fencing.test_unlike_acks_of_one_call_each_have_their_own_outcome,
    ),
    lua(
        "ack",
        "if state ~= 0 and not keep[state] then",
        "if false then",
        test_states.test_a_success_that_is_not_kept_removes_the_job_at_once,
    ),
    lua(
        "ack",
        "if state ~= 0 and not keep[state] then",
        "if not keep[state] then",
        test_states.test_not_keeping_ended_jobs_still_keeps_a_job_that_is_retried,
    ),
    lua("ack", "remaining > 0 and", "remaining >= 0 and", test_states.test_a_failure_of_the_last_attempt_ends_the_job),
    lua(
        "ack",
        "kind.ending == '2' and 0 or remaining - 1",
        "remaining - 1",
        test_states.test_a_permanent_failure_ends_the_job_whatever_attempts_remain,
    ),
    lua(
        "ack",
        "write('ZREM', base .. ':expiry', group.out)",
        "",
        test_expiry.test_a_claim_that_has_ended_does_not_expire,
        ended="acked",
    ),
    lua(
        "ack",
        "append(status, kind.status)",
        "cut(status .. kind.status)",
        test_status_text.test_appended_text_survives_whole_and_pushes_the_end_of_what_was_there_over_the_bound,
        text="abc",
    ),
    lua(
        "ack",
        "'LT', now, queue",
        "now, queue",
        test_ended_jobs.test_jobs_that_end_one_after_another_are_pruned_as_each_becomes_due,
        state=JobState.SUCCEEDED,
    ),
]

ACKS_AND_CLAIMS = [
    lua(
        "ack_and_claim",
        "= ack(KEYS[1], KEYS[2],",
        "= ack(KEYS[1], KEYS[2] .. 'x',",
        test_ack_and_claim.test_each_gets_what_the_two_calls_would_give,
        situation="failure to be retried at once",
    ),
    lua(
        "ack_and_claim",
        "sub(bounds, 1, 1) == '1'",
        "false",
        test_ack_and_claim.test_an_ack_frees_room_in_the_quota_for_the_claim_of_the_same_step,
    ),
    lua(
        "ack_and_claim",
        "sub(bounds, 1, 1) == '1'",
        "true",
        test_ack_and_claim.test_a_claim_that_is_not_held_to_the_quota_does_not_ask_for_it,
    ),
]

CHECKPOINTS = [
    lua(
        "checkpoint",
        "if not call('ZSCORE', running, id) then return nil end",
        "",
        test_fencing.test_a_checkpoint_of_what_is_not_in_progress_changes_nothing,
        state=JobState.SUCCEEDED,
    ),
    lua(
        "checkpoint",
        "if own ~= descriptor then return nil end",
        "",
        test_fencing.test_a_checkpoint_with_another_claim_is_refused_even_from_the_same_source,
    ),
    lua(
        "checkpoint",
        "elseif string.match(own, BEFORE_SOURCE) ~= source then",
        "elseif false then",
        test_fencing.test_a_checkpoint_without_a_claim_needs_exactly_the_same_source,
        source="worker",
    ),
    lua(
        "checkpoint",
        "'^[^:]*:[^:]*:[^:]*:[^:]*:(.*)$'",
        "'^.*:(.*)$'",
        test_fencing.test_sources_are_compared_byte_by_byte,
        source="a:b",
        other="b",
    ),
    lua(
        "checkpoint",
        "cut(ARGV[at + 7] .. status)",
        "ARGV[at + 7] .. status",
        test_status_text.test_text_in_front_pushes_the_end_over_the_bound,
        text="abc",
    ),
]

EXPIRY = [
    lua(
        "expire_claims",
        "base .. ':expiry', '-inf', '(' ..",
        "base .. ':expiry', '-inf',  ",
        test_expiry.test_of_two_claims_only_the_one_whose_time_is_over_expires,
    ),
    lua(
        "expire_claims",
        "base .. ':expiry', '-inf', '(' .. now",
        "base .. ':expiry', '-inf', '+inf'",
        test_expiry.test_each_claim_has_its_own_time_out,
    ),
    lua(
        "expire_claims",
        "'(' .. now, 'LIMIT', 0, left)\n  local",
        "'(' .. now)\n  local",
        test_expiry.test_expiry_works_in_steps_of_at_most_the_limit_over_all_queues,
    ),
    lua(
        "expire_claims",
        "budget > 0 and crashes",
        "crashes",
        test_expiry.test_without_a_budget_crashes_count_as_attempts_only,
        how="expiry",
    ),
    lua(
        "expire_claims",
        "crashes >= budget",
        "crashes > budget",
        test_expiry.test_a_job_fails_when_its_crash_budget_is_used_up_whatever_attempts_remain,
        how="expiry",
    ),
    lua(
        "expire_claims",
        "retries = remaining > 0",
        "retries = remaining >= 0",
        test_states.test_an_expired_claim_is_a_failed_attempt_and_a_crash,
        attempts=1,
        state=JobState.FAILED,
    ),
    lua(
        "expire_claims",
        "append(status, line)",
        "cut(status .. line)",
        test_status_text.test_the_line_of_an_expired_claim_survives_too,
    ),
    lua(
        "requeue_undelivered",
        "call('ZSCORE', base .. ':s:1:' .. priority, id)",
        "call('ZSCORE', base .. ':expiry', id)",
        test_wrong_names.test_a_claim_under_a_wrong_name_is_neither_requeued_nor_released,
        wrong="priority",
    ),
    lua(
        "requeue_undelivered",
        "sub(claim, DESCRIPTOR_AT) == ARGV[at + 2]\n      and ",
        "",
        test_wrong_names.test_a_job_under_another_claim_is_neither_requeued_nor_released,
    ),
    lua(
        "requeue_undelivered",
        "tonumber(call('ZSCORE', base .. ':expiry', id)) == tonumber(ARGV[at + 3])",
        "true",
        test_undelivered.test_a_claim_that_was_heard_of_stays,
    ),
    lua(
        "requeue_undelivered",
        "often < most",
        "often <= most",
        test_undelivered.test_so_often_in_a_row_and_then_its_claims_expire_as_any_other,
    ),
    lua(
        "requeue_undelivered",
        "attempts == remaining and ",
        "",
        test_undelivered.test_a_hand_out_that_was_received_ends_the_row,
        end="failure at the same time",
    ),
    lua(
        "requeue_undelivered",
        " and time == tonumber(run_after)",
        "",
        test_undelivered.test_a_hand_out_that_was_received_ends_the_row,
        end="snooze",
    ),
    lua("expire_disconnected", "not seen[id] and ", "", test_expiry.test_a_release_of_several_claims_counts_each_fate),
    lua(
        "expire_disconnected",
        "and redis.call('ZSCORE', base .. ':s:1:' .. ARGV[at], id)",
        "",
        test_wrong_names.test_a_claim_under_a_wrong_name_is_neither_requeued_nor_released,
        wrong="priority",
    ),
    lua(
        "expire_disconnected",
        "sub(claim, DESCRIPTOR_AT) == ARGV[at + 2] and ",
        "",
        test_wrong_names.test_a_job_under_another_claim_is_neither_requeued_nor_released,
    ),
    lua(
        "expire_disconnected",
        " and seen_at == tonumber(ARGV[at + 3])",
        "",
        test_expiry.test_a_claim_that_was_heard_of_since_is_not_released,
    ),
    *[
        mutation
        for script, way in (("heartbeat", test_corners.heartbeat), ("checkpoint", test_corners.checkpoint))
        for mutation in (
            lua(
                script,
                "return math.max(expiry, redis",
                "return math.min(expiry, redis",
                OVERTAKEN,
                way=way,
                behind_ms=1,
            ),
            lua(script, "id) + 1), last + 1", "id) + 1), last", IS_SEEN, way=way),
            lua(script, "and last - now <= 60000", "", OF_A_CLOCK_SET_BACK, way=way),
        )
    ],
    lua(
        "expire_disconnected",
        "seen_at == tonumber",
        "seen_at <= tonumber",
        test_expiry.test_a_claim_that_was_heard_of_since_is_not_released,
    ),
    lua(
        "expire_disconnected",
        "if seen_at ~= claimed_at then",
        "if false then",
        test_expiry.test_of_two_checkpoints_with_the_same_future_run_after_the_later_one_counts,
    ),
    lua(
        "checkpoint",
        "math.max(now + timeout, later)",
        "now + timeout",
        test_expiry.test_a_future_run_after_keeps_the_claim_until_its_time_out_after_that,
    ),
    lua(
        "checkpoint",
        "math.max(now + timeout, later)",
        "later",
        test_expiry.test_a_future_run_after_keeps_no_claim_for_longer_than_the_bound,
        latest_ms=999,
        lasts_ms=1_000,
    ),
    lua(
        "checkpoint",
        "math.min(tonumber(ARGV[at + 5]) + timeout, tonumber(ARGV[at + 9]))",
        "tonumber(ARGV[at + 5]) + timeout",
        test_expiry.test_a_future_run_after_keeps_no_claim_for_longer_than_the_bound,
        latest_ms=20_000,
        lasts_ms=20_000,
    ),
]

OPERATORS = [
    lua(
        "cancel",
        "if call('ZREM', base .. ':s:0:' .. priority, id) == 1",
        "if call('ZREM', base .. ':s:0:' .. priority, id) + call('ZREM', base .. ':s:1:' .. priority, id) == 1",
        test_states.test_a_cancel_removes_a_pending_job_and_says_what_any_other_was,
        state=JobState.IN_PROGRESS,
        outcome=CancelOutcome.IN_PROGRESS,
    ),
    lua(
        "delete_jobs",
        "limit - count - 1",
        "-1",
        test_ended_jobs.test_a_delete_takes_at_most_the_limit_of_one_priority,
        state=JobState.PENDING,
    ),
    lua(
        "delete_listed",
        "ARGV[at + 1]) == 1 then",
        "ARGV[at + 1]) >= 0 then",
        test_ended_jobs.test_a_listed_delete_removes_those_that_are_still_in_the_state,
        state=JobState.PENDING,
    ),
    lua(
        "retry_failed",
        "blocked + wanted - 1",
        "-1",
        test_ended_jobs.test_a_retry_takes_at_most_the_limit_oldest_run_after_first,
    ),
    lua(
        "retry_failed",
        "write('HDEL', base .. ':claims', ids)\n  local again",
        "local again",
        test_states.test_an_operator_brings_a_failed_job_back_with_the_attempts_given,
    ),
    lua(
        "prune",
        "'(' .. each[2]",
        "each[2]",
        test_ended_jobs.test_a_job_is_pruned_only_after_its_time_to_live,
        state=JobState.FAILED,
    ),
    lua(
        "prune",
        "ended, '-inf', before",
        "ended, '-inf', '+inf'",
        test_ended_jobs.test_jobs_that_end_one_after_another_are_pruned_as_each_becomes_due,
        state=JobState.FAILED,
    ),
    lua(
        "prune",
        "ended, '-inf', before, 'LIMIT', 0, left)",
        "ended, '-inf', before)",
        test_ended_jobs.test_pruning_works_in_steps_of_at_most_the_limit_over_all_queues,
    ),
]

LOOKS = [
    lua(
        "enqueue",
        "(tonumber(redis.call('GET', root .. ':last')) or 0) + 1",
        "0",
        test_ids.test_ids_ascend_in_the_order_given_and_from_call_to_call,
    ),
    lua(
        "enqueue",
        ", tonumber(ARGV[2]))",
        ", 1000000000000000)",
        test_ids.test_ids_never_fall_behind_the_time_in_microseconds,
    ),
    lua(
        "lookup",
        "if room >= 0 or first then",
        "if true then",
        test_bodies.test_a_lookup_leaves_out_the_bodies_beyond_the_bound,
    ),
    lua(
        "scan",
        "> after_id then",
        ">= after_id then",
        test_queries.test_paging_through_equal_run_after_values_shows_every_job_once_and_in_order,
        state=JobState.PENDING,
        limit=3,
    ),
    lua(
        "scan",
        "math.min(limit, #all)",
        "#all",
        test_queries.test_paging_through_equal_run_after_values_shows_every_job_once_and_in_order,
        state=JobState.PENDING,
        limit=2,
    ),
    lua(
        "scan",
        "if room < 0 and not first then",
        "if false then",
        test_queries.test_a_page_with_bodies_stays_within_its_bytes_but_shows_at_least_one_job,
    ),
    lua(
        "scan",
        "if room < 0 and not first",
        "if room < 0",
        test_queries.test_a_page_with_bodies_stays_within_its_bytes_but_shows_at_least_one_job,
    ),
]

REDIS = [*QUEUES, *CLAIMS, *ACKS, *ACKS_AND_CLAIMS, *CHECKPOINTS, *EXPIRY, *OPERATORS, *LOOKS, *CLUSTER, *KEYS]
