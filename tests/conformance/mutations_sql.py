"""The guards of the SQL statements, in all dialects, and of the steps that look at what the statements locked."""

from __future__ import annotations

from pinlater.model import CancelOutcome, JobState
from tests.conformance import (
    test_bodies,
    test_checkpoints,
    test_claims,
    test_concurrency,
    test_corners,
    test_ended_jobs,
    test_expiry,
    test_fencing,
    test_ids,
    test_queries,
    test_queues,
    test_states,
    test_undelivered,
    test_wrong_names,
)
from tests.conformance.mutations_sql_cluster import CLUSTER
from tests.conformance.mutations_sql_ways import lock, only, sql, step

QUEUE = "queue_id = (SELECT id FROM pinlater_queues WHERE name = $)"
ANY_QUEUE = "CAST($ AS CHAR) IS NOT NULL"
SCAN_BY_STATE = test_queries.test_each_state_is_counted_and_scanned_apart
SCAN_AT_NOW = test_queries.test_a_job_at_exactly_now_is_current_and_counted_once
PRIORITIES = test_queries.test_counts_and_scans_take_the_priorities_asked_for
OVERTAKEN = test_corners.test_a_renewal_that_was_overtaken_takes_no_time_from_the_claim
IS_SEEN = test_corners.test_a_renewal_whose_clock_is_behind_that_of_the_claim_is_seen
OF_A_CLOCK_SET_BACK = test_corners.test_a_renewal_of_a_clock_that_was_set_back_counts_from_its_own_time
KEPT_UNTIL = test_expiry.test_a_future_run_after_keeps_the_claim_until_its_time_out_after_that
KEPT_UP_TO = test_expiry.test_a_future_run_after_keeps_no_claim_for_longer_than_the_bound
KEPT_PLAN = test_checkpoints.test_heartbeats_that_name_the_run_after_of_their_jobs_leave_it
BOUNDED = {"latest_ms": 20_000, "lasts_ms": 20_000}
SHORT = {"latest_ms": 999, "lasts_ms": 1_000}
PAGING = test_queries.test_paging_through_equal_run_after_values_shows_every_job_once_and_in_order

STATEMENTS = [
    *sql("candidates", "state = 0 AND", "state <= 1 AND", test_claims.test_a_job_in_progress_is_not_handed_out_again),
    *sql("candidates", "run_after_ms <= $", "run_after_ms <= $ + 1", test_states.test_a_future_job_is_not_handed_out),
    *sql(
        "candidates",
        "run_after_ms <= $",
        "run_after_ms < $",
        test_claims.test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before,
    ),
    *sql("candidates", "queue_id = $", "queue_id >= $", test_queues.test_queues_share_nothing),
    *only(
        "sqlite",
        "candidates",
        "priority = ?",
        "priority >= ?",
        test_claims.test_only_the_priorities_asked_for_are_handed_out,
    ),
    *only(
        "mysql",
        "candidates",
        "priority IN %s",
        "0 NOT IN %s",
        test_claims.test_only_the_priorities_asked_for_are_handed_out,
    ),
    *only(
        "sqlite",
        "candidates",
        "ORDER BY run_after_ms, id",
        "ORDER BY id",
        test_claims.test_within_a_priority_the_earlier_run_after_comes_first,
    ),
    *only(
        "sqlite",
        "candidates",
        "ORDER BY run_after_ms, id",
        "ORDER BY run_after_ms, id DESC",
        test_claims.test_jobs_with_equal_run_after_come_by_age,
    ),
    *only(
        "mysql",
        "candidates",
        "ORDER BY priority, run_after_ms, id",
        "ORDER BY run_after_ms, id",
        test_claims.test_higher_priorities_come_first_whatever_their_age,
    ),
    *only(
        "mysql",
        "candidates",
        "ORDER BY priority, run_after_ms, id",
        "ORDER BY priority, id",
        test_claims.test_within_a_priority_the_earlier_run_after_comes_first,
    ),
    *only(
        "mysql",
        "candidates",
        "ORDER BY priority, run_after_ms, id",
        "ORDER BY priority, run_after_ms, id DESC",
        test_claims.test_jobs_with_equal_run_after_come_by_age,
    ),
    *only(
        "mysql",
        "queue_id_if_eligible",
        "job.run_after_ms <= %s",
        "job.run_after_ms < %s",
        test_claims.test_a_job_is_handed_out_at_exactly_its_time_and_not_a_millisecond_before,
    ),
    *sql(
        "ready_in_priority",
        "state = 0",
        "state <= 1",
        test_claims.test_ready_counts_eligible_jobs_per_priority_up_to_the_limit,
    ),
    *sql(
        "ready_in_priority",
        "run_after_ms <= $",
        "run_after_ms <= $ + 1",
        test_claims.test_ready_counts_eligible_jobs_per_priority_up_to_the_limit,
    ),
    *sql(
        "ready_in_priority",
        "LIMIT $",
        "AND $ > 0",
        test_claims.test_ready_counts_eligible_jobs_per_priority_up_to_the_limit,
    ),
    *sql(
        "in_progress",
        "state = 1",
        "state >= 0",
        test_fencing.test_an_ack_of_what_is_not_in_progress_changes_nothing,
        state=JobState.SUCCEEDED,
        succeeded=True,
    ),
    *sql(
        "when_claimed",
        "state = 1",
        "state >= 1",
        test_fencing.test_a_checkpoint_of_what_is_not_in_progress_changes_nothing,
        state=JobState.FAILED,
    ),
    *sql(
        "when_claimed", QUEUE, ANY_QUEUE, test_wrong_names.test_a_checkpoint_by_a_wrong_name_is_refused, wrong="queue"
    ),
    *[
        mutation
        for statement, way in (("renew_claims", test_corners.heartbeat), ("heartbeat", test_corners.checkpoint))
        for mutation in (
            *sql(statement, "THEN claim_expires_at_ms + 1", "THEN 0", OVERTAKEN, way=way, behind_ms=1),
            *sql(statement, "claimed_at_ms) + 1 ELSE", "claimed_at_ms) ELSE", IS_SEEN, way=way),
            *sql(
                statement,
                "BETWEEN $ AND $ THEN claim_expires",
                ">= $ AND $ > 0 THEN claim_expires",
                OF_A_CLOCK_SET_BACK,
                way=way,
            ),
            *[
                mutation
                for last in ("max(updated", "GREATEST(updated")
                for mutation in sql(
                    statement,
                    f"BETWEEN $ AND $ THEN {last}",
                    f">= $ AND $ > 0 THEN {last}",
                    OF_A_CLOCK_SET_BACK,
                    way=way,
                )
                if (mutation.store == "sqlite") == (last == "max(updated")
            ],
        )
    ],
    *only("sqlite", "heartbeat", "= coalesce(?, run_after_ms)", "= coalesce(?, run_after_ms + 1)", KEPT_PLAN),
    *only("mysql", "heartbeat", "= COALESCE(%s, run_after_ms)", "= COALESCE(%s, run_after_ms + 1)", KEPT_PLAN),
    *sql("in_progress", QUEUE, ANY_QUEUE, test_wrong_names.test_an_ack_by_a_wrong_name_is_ignored, wrong="queue"),
    *sql(
        "last_seen",
        "updated_at_ms",
        "claim_expires_at_ms - claim_timeout_ms",
        test_expiry.test_of_two_checkpoints_with_the_same_future_run_after_the_later_one_counts,
    ),
    *only("sqlite", "heartbeat", "min(coalesce(?, run_after_ms) + claim_timeout_ms, ?)", "0 * ? * ?", KEPT_UNTIL),
    *only("mysql", "heartbeat", "LEAST(COALESCE(%s, run_after_ms) + claim_timeout_ms, %s)", "0 * %s * %s", KEPT_UNTIL),
    *only(
        "sqlite",
        "heartbeat",
        "min(coalesce(?, run_after_ms) + claim_timeout_ms, ?)",
        "coalesce(?, run_after_ms) + claim_timeout_ms + 0 * ?",
        KEPT_UP_TO,
        **BOUNDED,
    ),
    *only("mysql", "heartbeat", "LEAST(COALESCE(", "GREATEST(COALESCE(", KEPT_UP_TO, **BOUNDED),
    *only("sqlite", "heartbeat", "max(? + claim_timeout_ms", "max(0 * ?", KEPT_UP_TO, **SHORT),
    *only("mysql", "heartbeat", "GREATEST(%s + claim_timeout_ms", "GREATEST(0 * %s", KEPT_UP_TO, **SHORT),
    *sql(
        "last_seen",
        QUEUE,
        ANY_QUEUE,
        test_wrong_names.test_a_claim_under_a_wrong_name_is_neither_requeued_nor_released,
        wrong="queue",
    ),
    *sql(
        "expired_claims",
        "claim_expires_at_ms < $",
        "claim_expires_at_ms <= $",
        test_expiry.test_a_claim_expires_only_after_its_time_out,
    ),
    *only(
        "sqlite",
        "expired_claims",
        "LIMIT ?",
        "LIMIT ? + 99",
        test_expiry.test_expiry_works_in_steps_of_at_most_the_limit_over_all_queues,
    ),
    *sql(
        "succeeded_before",
        "finished_at_ms < $",
        "0 < $",
        test_ended_jobs.test_jobs_that_end_one_after_another_are_pruned_as_each_becomes_due,
        state=JobState.SUCCEEDED,
    ),
    *sql(
        "failed_before",
        "finished_at_ms < $",
        "0 < $",
        test_ended_jobs.test_jobs_that_end_one_after_another_are_pruned_as_each_becomes_due,
        state=JobState.FAILED,
    ),
    *only(
        "mysql",
        "succeeded_before",
        "state = 2",
        "state = 3",
        test_ended_jobs.test_each_ended_state_has_its_own_time_to_live,
        state=JobState.SUCCEEDED,
    ),
    *only(
        "mysql",
        "failed_before",
        "state = 3",
        "state = 2",
        test_ended_jobs.test_each_ended_state_has_its_own_time_to_live,
        state=JobState.FAILED,
    ),
    *sql("named", QUEUE, ANY_QUEUE, test_wrong_names.test_a_cancel_by_a_wrong_name_finds_nothing, wrong="queue"),
    *sql("infos", QUEUE, ANY_QUEUE, test_wrong_names.test_a_lookup_by_a_wrong_name_finds_nothing, wrong="queue"),
    *sql("count_between", "run_after_ms <= $", "run_after_ms < $", SCAN_AT_NOW),
    *sql("count_between", "run_after_ms >= $", "run_after_ms > $", SCAN_AT_NOW),
    *sql("count_between", "state = $", "state >= $", SCAN_BY_STATE, state=JobState.IN_PROGRESS),
    *sql("count_between", "priority = $", "priority >= $", PRIORITIES),
    *sql(
        "count_between",
        "queue_id = $",
        "queue_id >= $",
        test_queues.test_queue_names_that_differ_only_in_case_are_different_queues,
    ),
    *sql("scan_at", "id > $", "id >= $", PAGING, state=JobState.PENDING, limit=3),
    *sql("scan_at", "state = $", "state >= $", SCAN_BY_STATE, state=JobState.IN_PROGRESS),
    *sql("scan_between", "state = $", "state >= $", SCAN_BY_STATE, state=JobState.IN_PROGRESS),
    *sql("scan_between", "run_after_ms <= $", "run_after_ms < $", SCAN_AT_NOW),
    *sql("scan_between", "priority = $", "priority >= $", PRIORITIES),
    *sql(
        "oldest",
        "state = $",
        "state >= $",
        test_states.test_a_delete_removes_the_jobs_of_the_state_it_names_and_no_others,
        state=JobState.IN_PROGRESS,
    ),
    *sql(
        "oldest",
        "priority = $",
        "priority >= $",
        test_ended_jobs.test_a_delete_takes_at_most_the_limit_of_one_priority,
        state=JobState.PENDING,
    ),
    *sql("oldest", "queue_id = $", "queue_id >= $", test_queues.test_an_operator_changes_jobs_of_that_queue_only),
    *sql(
        "oldest",
        "ORDER BY run_after_ms, id",
        "ORDER BY id",
        test_ended_jobs.test_a_retry_takes_at_most_the_limit_oldest_run_after_first,
    ),
    *sql(
        "oldest",
        "ORDER BY run_after_ms, id LIMIT $",
        "AND $ > 0",
        test_ended_jobs.test_a_delete_takes_at_most_the_limit_of_one_priority,
        state=JobState.PENDING,
    ),
    *only(
        "sqlite",
        "allocate_ids",
        "max(next_id, ?)",
        "next_id + 0 * ?",
        test_ids.test_ids_never_fall_behind_the_time_in_microseconds,
    ),
    *only(
        "mysql",
        "allocate_ids",
        "GREATEST(next_id, %s)",
        "next_id + 0 * %s",
        test_ids.test_ids_never_fall_behind_the_time_in_microseconds,
    ),
    *only(
        "sqlite",
        "allocate_ids",
        "max(next_id, ?)",
        "max(0, ?)",
        test_ids.test_ids_go_on_ascending_when_the_clock_goes_back,
    ),
    *only(
        "mysql",
        "allocate_ids",
        "GREATEST(next_id, %s)",
        "GREATEST(0, %s)",
        test_ids.test_ids_go_on_ascending_when_the_clock_goes_back,
    ),
]

ONE_ACK = test_concurrency.test_of_many_acks_of_one_claim_exactly_one_is_taken
ONE_CLAIMER = test_concurrency.test_claimers_never_share_a_job_and_leave_none

LOCKS = [
    *lock("lock_and_skip", "FOR UPDATE SKIP LOCKED", ONE_CLAIMER),
    *lock("in_progress", "FOR UPDATE", ONE_ACK),
    *lock(
        "when_claimed",
        "FOR UPDATE",
        test_concurrency.test_taking_back_what_nobody_received_against_expiry_has_one_winner,
    ),
    *lock("last_seen", "FOR UPDATE", test_concurrency.test_a_checkpoint_against_a_release_has_one_winner),
    *lock(
        "expired_claims",
        "FOR UPDATE SKIP LOCKED",
        test_concurrency.test_expiry_at_once_on_several_servers_takes_one_attempt,
    ),
    *lock("named", "FOR UPDATE", test_concurrency.test_a_claim_against_a_cancel_has_one_winner),
]

UNDER_ANOTHER_CLAIM = test_wrong_names.test_a_job_under_another_claim_is_neither_requeued_nor_released
HEARD_OF_SINCE = test_expiry.test_a_claim_that_was_heard_of_since_is_not_released
BY_A_WRONG_NAME = test_wrong_names.test_a_claim_under_a_wrong_name_is_neither_requeued_nor_released

STEPS = [
    *step(
        "session",
        "            raise QueueNotFound.of(queue)\n        return int(rows[0][0])",
        "            return -1\n        return int(rows[0][0])",
        test_queues.test_an_unknown_queue_is_refused_by,
        call=test_queues.REFUSED["enqueue"],
    ),
    *step(
        "attempts",
        "and bool(row[EXPIRES_AT] == claim.expires_at_ms)",
        "",
        test_undelivered.test_a_claim_that_was_heard_of_stays,
    ),
    *step(
        "attempts",
        " and each.id not in changed",
        "",
        test_checkpoints.test_a_heartbeat_that_names_an_earlier_run_after_sets_it_back,
    ),
    *step(
        "ready_jobs",
        "if times <= UNDELIVERED_IN_A_ROW:",
        "if times <= UNDELIVERED_IN_A_ROW + 1:",
        test_undelivered.test_so_often_in_a_row_and_then_its_claims_expire_as_any_other,
    ),
    *step(
        "ready_jobs",
        "if before == now else 1",
        "if before else 1",
        test_undelivered.test_a_hand_out_that_was_received_ends_the_row,
        end="snooze",
    ),
    *step(
        "ready_jobs",
        "if not counts[0]:",
        "counts[0] = 1\n    if False:",
        test_queues.test_an_unknown_queue_is_refused_by,
        call=test_queues.REFUSED["ready"],
    ),
    *step(
        "admin",
        "    session.queue_id(queue)\n    rows = _listed(session, queue, state, jobs)",
        "    rows = _listed(session, queue, state, jobs)",
        test_queues.test_an_unknown_queue_is_refused_by,
        call=test_queues.REFUSED["delete listed"],
    ),
    *step(
        "attempts",
        'each.claim_descriptor not in ("", row[CLAIM])',
        "False",
        test_fencing.test_an_ack_with_another_claim_is_ignored,
        succeeded=True,
    ),
    *step(
        "attempts",
        "row[PRIORITY] != each.priority or ",
        "",
        test_wrong_names.test_an_ack_by_a_wrong_name_is_ignored,
        wrong="priority",
    ),
    *step(
        "attempts",
        "del rows[each.id]  # named twice",
        "pass  # named twice",
        test_fencing.test_a_job_named_twice_is_acked_by_the_first_that_applies,
    ),
    *step(
        "attempts",
        "attempts_remaining <= 1",
        "attempts_remaining <= 0",
        test_states.test_a_failure_of_the_last_attempt_ends_the_job,
    ),
    *step(
        "attempts", "each.permanent or ", "", test_states.test_a_permanent_failure_ends_the_job_whatever_attempts_remain
    ),
    *step(
        "attempts",
        "if not rules.keep_succeeded:",
        "if False:",
        test_states.test_a_success_that_is_not_kept_removes_the_job_at_once,
    ),
    *step(
        "attempts",
        '("fail", 0, each.append_status) if rules.keep_failed else',
        '("fail", 0, each.append_status) if True else',
        test_states.test_a_failure_that_is_not_kept_removes_the_job_at_once,
    ),
    *step("attempts", " and row[CLAIM] == claim.claim_descriptor", "", UNDER_ANOTHER_CLAIM),
    *step("attempts", "row[PRIORITY] == claim.priority and ", "", BY_A_WRONG_NAME, wrong="priority"),
    *step("attempts", " and row[LAST_SEEN_AT] == claim.last_seen_ms", "", HEARD_OF_SINCE),
    *step(
        "attempts", "row[LAST_SEEN_AT] == claim.last_seen_ms", "row[LAST_SEEN_AT] <= claim.last_seen_ms", HEARD_OF_SINCE
    ),
    *step(
        "attempts",
        "if row[PRIORITY] != each.priority:",
        "if False:",
        test_wrong_names.test_a_checkpoint_by_a_wrong_name_is_refused,
        wrong="priority",
    ),
    *step(
        "attempts",
        "bool(row[CLAIM] == each.claim_descriptor)",
        "True",
        test_fencing.test_a_checkpoint_with_another_claim_is_refused_even_from_the_same_source,
    ),
    *step(
        "attempts",
        "claim_source(row[CLAIM]) == each.source",
        "True",
        test_fencing.test_a_checkpoint_without_a_claim_needs_exactly_the_same_source,
        source="worker",
    ),
    *step(
        "attempts",
        "    del rows[each.id]\n    beats.send()",
        "    pass\n    beats.send()",
        test_checkpoints.test_checkpoints_of_one_call_work_in_order,
    ),
    *step(
        "ready_jobs",
        "rows[start : start + request.limit]",
        "rows[start:]",
        test_claims.test_several_requests_in_a_call_are_served_in_turn_and_share_no_job,
    ),
    *step(
        "ready_jobs",
        "batch = batch[: how_many_fit((row[BODY_BYTES] for row in batch), request.max_bytes)]",
        "pass",
        test_claims.test_bodies_handed_out_stay_within_the_bound_and_the_rest_stays_pending,
    ),
    *step(
        "ready_jobs",
        "if given >= SLICE_BYTES:",
        "if False:",
        test_claims.test_once_a_slice_of_bodies_is_handed_out_no_further_request_is_looked_at,
    ),
    *step(
        "ready_jobs",
        "start += len(batch)",
        "start += request.limit",
        test_claims.test_each_request_of_a_call_has_its_own_bound_of_bytes,
    ),
    *step(
        "attempts",
        "0 < rules.crash_budget <= crashes",
        "rules.crash_budget <= crashes",
        test_expiry.test_without_a_budget_crashes_count_as_attempts_only,
        how="expiry",
    ),
    *step(
        "attempts",
        "0 < rules.crash_budget <= crashes",
        "0 < rules.crash_budget < crashes",
        test_expiry.test_a_job_fails_when_its_crash_budget_is_used_up_whatever_attempts_remain,
        how="release",
    ),
    *step(
        "attempts",
        "0 if used_up else max(row[REMAINING] - 1, 0)",
        "max(row[REMAINING] - 1, 0)",
        test_expiry.test_a_job_fails_when_its_crash_budget_is_used_up_whatever_attempts_remain,
        how="expiry",
    ),
    *step(
        "admin",
        "before_ms, limit - len(ends))",
        "before_ms, limit)",
        test_ended_jobs.test_pruning_works_in_steps_of_at_most_the_limit_over_all_queues,
    ),
    *step(
        "admin",
        "row[1] == job.priority and row[2] in STATES_OF[state]",
        "row[1] == job.priority",
        test_ended_jobs.test_a_listed_delete_removes_those_that_are_still_in_the_state,
        state=JobState.PENDING,
    ),
    *step(
        "admin",
        "row[1] == job.priority and row[2] in STATES_OF[state]",
        "row[2] == state",
        test_wrong_names.test_a_listed_delete_by_a_wrong_name_removes_nothing,
        wrong="priority",
    ),
    *step(
        "admin",
        "row is None or row[1] != job.priority",
        "row is None",
        test_wrong_names.test_a_cancel_by_a_wrong_name_finds_nothing,
        wrong="priority",
    ),
    *step(
        "admin",
        "if outcome is CancelOutcome.CANCELLED:",
        "if True:",
        test_states.test_a_cancel_removes_a_pending_job_and_says_what_any_other_was,
        state=JobState.IN_PROGRESS,
        outcome=CancelOutcome.IN_PROGRESS,
    ),
    *step(
        "queries",
        "row is not None and row[2] == job.priority",
        "row is not None",
        test_wrong_names.test_a_lookup_by_a_wrong_name_finds_nothing,
        wrong="priority",
    ),
    *step(
        "queries",
        "list(found)[:fitting]",
        "list(found)",
        test_bodies.test_a_lookup_leaves_out_the_bodies_beyond_the_bound,
    ),
    *step(
        "queries", "islice(merge(*places), request.limit)", "merge(*places)", PAGING, state=JobState.PENDING, limit=2
    ),
    *step(
        "queries",
        "rows = rows[: how_many_fit((row[BODY_BYTES] for row in rows), request.max_bytes)]",
        "pass",
        test_queries.test_a_page_with_bodies_stays_within_its_bytes_but_shows_at_least_one_job,
    ),
    *step("queries", "return (now_ms + 1, MAX_TIME_MS)", "return (now_ms, MAX_TIME_MS)", SCAN_AT_NOW),
    *step(
        "ready_jobs",
        "max(now_ms * 1000, SMALLEST_ID)",
        "SMALLEST_ID",
        test_ids.test_ids_never_fall_behind_the_time_in_microseconds,
    ),
]

SQL = [*STATEMENTS, *LOCKS, *STEPS, *CLUSTER]
