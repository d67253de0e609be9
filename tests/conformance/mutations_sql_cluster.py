"""The guards of the SQL statements and steps for what servers agree on, for quotas, dead letters and stats."""

from __future__ import annotations

from pinlater.backends.base import LIVE_STATES
from pinlater.model import JobState
from tests.conformance import (
    test_ack_and_claim,
    test_config_entries,
    test_dead_letters,
    test_dedupe_keys,
    test_ended_jobs,
    test_kv,
    test_one_failure,
    test_quotas,
    test_replay,
    test_retry_listed,
    test_stats,
    test_tokens,
)
from tests.conformance.mutations_sql_ways import lock, only, sql, step

ANEW = test_config_entries.test_a_queue_made_anew_after_a_deletion_that_was_missed_here_loses_its_old_jobs
NEVER_FALLS = test_dedupe_keys.test_a_mark_comes_to_a_new_home_and_never_falls
OLD_TOMBSTONES = test_config_entries.test_old_tombstones_are_removed_without_being_counted_and_nothing_else_is
VERSION_OF_A_NOTE = test_kv.test_a_write_that_expects_another_version_changes_nothing
MARKED = test_dead_letters.test_a_final_failure_of_any_kind_is_pending_in_the_same_step
STATS = test_stats.test_the_pages_of_stats_make_together_what_is_there

RECORDS = [
    *step(
        "coordination",
        "entry.version > here",
        "True",
        test_config_entries.test_what_is_not_newer_changes_nothing,
    ),
    *step(
        "coordination",
        "entry.version > here",
        "entry.version >= here",
        test_config_entries.test_what_is_not_newer_changes_nothing,
    ),
    *step("coordination", "entry.deleted_version > version_here", "False", ANEW),
    *step(
        "coordination",
        "entry.deleted_version > version_here",
        "entry.deleted_version",
        test_config_entries.test_a_deletion_that_is_known_takes_no_jobs_a_second_time,
    ),
    *step(
        "coordination",
        'if "@" not in entry.name:',
        "if True:",
        test_config_entries.test_an_entry_with_an_at_sign_is_no_queue,
    ),
    *step(
        "coordination",
        "if not entry.is_deleted:",
        "if True:",
        test_config_entries.test_a_tombstone_of_a_queue_that_never_was_here_makes_none,
    ),
    *step(
        "coordination",
        "versions[entry.name] = entry.version",
        "pass",
        test_config_entries.test_entries_of_one_call_are_taken_in_order_and_answered_in_place,
    ),
    *only(
        "sqlite",
        "config_entries",
        "revision > ?",
        "revision >= ?",
        test_config_entries.test_pages_show_what_came_in_the_order_in_which_it_came,
    ),
    *sql("tombstones", "deleted_version < $", "deleted_version <= $", OLD_TOMBSTONES),
    *step(
        "coordination",
        'session.run_in("remove_firings", (), [name.encode() for name in names])',
        "pass",
        test_dedupe_keys.test_the_mark_of_a_schedule_goes_with_the_tombstone_of_its_entry,
    ),
    *only("sqlite", "put_firings", "max(mark, excluded.mark)", "excluded.mark", NEVER_FALLS),
    *only("mysql", "put_firings", "GREATEST(mark, VALUES(mark))", "VALUES(mark)", NEVER_FALLS),
]

SHARES = [
    *step(
        "coordination",
        "quota - _in_progress(session, queue_id, quota)",
        "quota",
        test_quotas.test_capped_claims_go_up_to_the_quota_and_no_further,
    ),
    *step(
        "coordination",
        "version <= version_here",
        "version < version_here",
        test_quotas.test_an_older_version_is_ignored_and_version_zero_only_reads,
    ),
    *step(
        "ready_jobs",
        "room -= sum(map(len, batches))",
        "pass",
        test_quotas.test_the_requests_of_a_call_share_the_room_in_their_order,
    ),
    *step(
        "ready_jobs",
        "if enforce_quota and queue_id",
        "if queue_id",
        test_quotas.test_a_claim_that_is_not_capped_does_not_ask_for_the_quota,
    ),
    *step(
        "ready_jobs",
        "requests, now_ms, enforce_quota)\n\n\ndef _alike",
        "requests, now_ms, False)\n\n\ndef _alike",
        test_ack_and_claim.test_an_ack_frees_room_in_the_quota_for_the_claim_of_the_same_step,
    ),
    *step(
        "ready_jobs",
        "    outcomes = ack(session, freed, queue, acks, now_ms, rules)\n"
        "    return outcomes, claim(session, queue, requests, now_ms, enforce_quota)",
        "    claims = claim(session, queue, requests, now_ms, enforce_quota)\n"
        "    return ack(session, freed, queue, acks, now_ms, rules), claims",
        test_ack_and_claim.test_each_gets_what_the_two_calls_would_give,
        situation="failure to be retried at once",
    ),
    *sql(
        "in_progress_up_to",
        "queue_id = $",
        "queue_id <= $",
        test_quotas.test_quotas_of_queues_are_apart,
    ),
    *[
        mutation
        for store, old in (("sqlite", "state = 1"), ("mysql", "state = 1"), ("postgres", "state BETWEEN 1 AND 1"))
        for mutation in only(
            *(store, "in_progress_up_to", old, "state = 0"),
            test_quotas.test_capped_claims_go_up_to_the_quota_and_no_further,
        )
    ],
    *lock("locked_quota", "FOR UPDATE", test_quotas.test_claimers_at_once_never_hold_more_than_the_quota),
]

DEAD_LETTERS = [
    *step("attempts", "if rules.dead_letters:", "if False:", MARKED, way="ack"),
    *step("attempts", 'DEAD_LETTER_PENDING_MS if name == "fail_and_mark" else None', "None", MARKED, way="ack"),
    *step("attempts", '"fail_and_mark" if rules.dead_letters else "fail"', '"fail"', MARKED, way="expiry"),
    *step(
        "attempts",
        "rules.get(names[row[1]])",
        "rules.default",
        test_dead_letters.test_each_queue_goes_by_its_own_rules_at_expiry,
    ),
    *only(
        "mysql",
        "failed_before",
        "claim_expires_at_ms IS NULL",
        "(claim_expires_at_ms IS NULL OR 1 = 1)",
        test_dead_letters.test_jobs_that_wait_to_be_copied_do_not_hide_those_to_prune,
    ),
    *sql(
        "clear_moved_to",
        "moved_to = NULL",
        "moved_to = moved_to",
        test_dead_letters.test_a_job_that_was_retried_and_fails_again_is_a_dead_letter_again,
    ),
    *sql(
        "clear_dead_letter_pending",
        "claim_expires_at_ms = NULL",
        "claim_expires_at_ms = claim_expires_at_ms",
        test_dead_letters.test_a_second_step_copies_nothing_more,
    ),
    *step(
        "dead_letters",
        "limit -= len(rows)",
        "pass",
        test_dead_letters.test_copying_works_in_steps_of_at_most_the_limit_over_all_queues,
    ),
    *step(
        "dead_letters",
        "row[2] in GOES and link",
        "link",
        test_replay.test_only_letters_that_are_pending_or_failed_go_back,
        state=JobState.IN_PROGRESS,
    ),
    *step(
        "dead_letters",
        "del rows[job.id]  # named twice",
        "pass  # named twice",
        test_replay.test_each_letter_of_a_call_is_answered_in_its_place_and_goes_once,
    ),
    *step(
        "admin",
        "row[1] == job.priority and row[2] in STATES_OF[state]",
        "True",
        test_retry_listed.test_the_others_stay_as_they_are,
    ),
    *step(
        "dead_letters",
        "row[2] in GOES and (",
        "True and (",
        test_one_failure.test_a_job_whose_letter_runs_or_succeeded_stays_as_it_is,
        state="IN PROGRESS",
        listed=True,
    ),
    *step(
        "dead_letters",
        "(ref.id not in links or links[ref.id][MOVED_TO] is None)",
        "True",
        test_one_failure.test_a_job_whose_letter_runs_or_succeeded_stays_as_it_is,
        state="WITH ITS OWN",
        listed=True,
    ),
    *step(
        "dead_letters",
        "if ref is not None and ref.shard == session.shard_id",
        "if ref is not None",
        test_one_failure.test_a_letter_that_went_to_another_shard_is_never_taken_for_deleted,
    ),
    *step(
        "dead_letters",
        "for row, letter_elsewhere in _originals(session, letters):",
        "for row, letter_elsewhere in ():",
        test_one_failure.test_a_letter_that_went_to_another_shard_is_never_taken_for_deleted,
    ),
    *step(
        "dead_letters",
        "if marks_originals:",
        "if True:",
        test_one_failure.test_without_marks_the_job_stays_as_servers_before_know_it,
    ),
    *step(
        "dead_letters",
        'session.run_of("note_cancelled", (), [job_id])',
        "pass",
        test_one_failure.test_a_replayed_job_is_pruned_as_one_that_failed,
    ),
    *step(
        "admin",
        "for row in rows if row[2] != REPLAYED]",
        "for row in rows]",
        test_one_failure.test_a_replayed_job_is_left_out_of_every_retry,
    ),
    *step(
        "admin",
        "[letters.going[job_id] for job_id in ids if job_id in letters.going]",
        "[]",
        test_one_failure.test_a_retry_takes_the_dead_letter_with_it,
        state="PENDING",
        listed=False,
    ),
    *step(
        "admin",
        "[letters.going[job_id] for job_id in ids if job_id in letters.going]",
        "list(letters.going.values())",
        test_one_failure.test_a_job_that_stays_for_its_key_keeps_its_letter,
        listed=True,
    ),
    *step(
        "admin",
        "if letters.held:",
        "if False:",
        test_one_failure.test_jobs_that_stay_for_their_letters_take_nothing_of_the_limit,
    ),
    *lock("dead_letters_pending", "FOR UPDATE SKIP LOCKED", test_dead_letters.test_steps_at_once_copy_each_job_once),
]

ENDING = [
    *step(
        "admin",
        "kept = retention.get(name)",
        "kept = retention.default",
        test_ended_jobs.test_a_queue_with_a_time_to_live_of_its_own_is_pruned_by_that,
        state=JobState.SUCCEEDED,
    ),
    *only(
        "mysql",
        "oldest_ended",
        "AND state = 2",
        "AND state = 3",
        test_ended_jobs.test_a_job_is_pruned_only_after_its_time_to_live,
        state=JobState.SUCCEEDED,
    ),
]

NOTES = [
    *step("coordination", "expected_version in (None, version)", "True", VERSION_OF_A_NOTE, kind="kind"),
    *step(
        "coordination",
        "if expired_at_ms <= now_ms:",
        "if expired_at_ms < now_ms:",
        test_kv.test_an_entry_is_there_until_it_expires_and_then_counts_as_none,
        kind="kind",
    ),
    *sql(
        "kv_entries",
        "expires_at_ms > $",
        "expires_at_ms >= $",
        test_kv.test_an_entry_is_there_until_it_expires_and_then_counts_as_none,
        kind="kind",
    ),
    *sql(
        "excess_kv_entries",
        "expires_at_ms DESC",
        "expires_at_ms",
        test_kv.test_beyond_the_number_to_keep_the_first_to_expire_go,
        kind="kind",
    ),
    *lock("bucket", "FOR UPDATE", test_tokens.test_takers_at_once_get_together_exactly_what_was_filled, queue="mail"),
]

CENSUS_PIECES = [
    *sql(
        "stats_all",
        "run_after_ms > $",
        "run_after_ms >= $",
        test_stats.test_jobs_become_ready_as_time_passes,
    ),
    *sql(
        "stats_all",
        "queue_id = $",
        "queue_id >= $",
        test_stats.test_an_empty_queue_counts_nothing_and_other_queues_do_not_count,
    ),
    *sql("stats_at", "id > $", "id >= $", test_stats.test_many_jobs_of_one_moment_are_counted_page_by_page),
    *sql("stats_between", "state = $", "state >= $", STATS, limit=5),
    *step(
        "queries",
        "if after is None and len(states) == len(LEVEL_COUNTS):",
        "if after is None:",
        test_stats.test_only_the_states_asked_for_are_counted,
        states=LIVE_STATES,
        limit=1_000,
    ),
]

HOMES = [
    mutation
    for test in (
        test_dedupe_keys.test_a_step_by_older_homes_stores_nothing,
        test_retry_listed.test_by_older_homes_none_comes_back,
        test_replay.test_by_older_homes_no_letter_goes_back,
    )
    for mutation in step("keyed_jobs", 'if (version or "") > homes_version:', "if False:", test)
]

CLUSTER = [*HOMES, *RECORDS, *SHARES, *DEAD_LETTERS, *ENDING, *NOTES, *CENSUS_PIECES]
