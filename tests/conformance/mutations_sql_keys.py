"""The guards of the SQL statements for what few jobs have, and of the steps around them: keys, chains, ends, expiry."""

from __future__ import annotations

from pinlater.model import MAX_TIME_MS
from tests.conformance import test_dedupe_keys as dedupe
from tests.conformance import test_key_corners as corners
from tests.conformance import test_replay, test_retry_listed
from tests.conformance import test_requests_to_stop as stops
from tests.conformance import test_serialize_keys as chains
from tests.conformance.mutations_sql_ways import only, sql, step

OFFERS = [
    *step(
        "admin",
        "queue_by_homes(session, queue, homes_version), _listed",
        "session.queue_id(queue), _listed",
        test_retry_listed.test_by_older_homes_none_comes_back,
    ),
    *step(
        "dead_letters",
        "    queue_by_homes(session, queue, homes_version)\n",
        "",
        test_replay.test_by_older_homes_no_letter_goes_back,
    ),
    *step(
        "keyed_jobs",
        'if session.put("add_live_keys", new) == len(new):',
        'if session.put("add_live_keys", new) >= 0:',
        dedupe.test_a_key_is_taken_while_its_job_is_live,
    ),
    *step(
        "keyed_jobs",
        "bool(offer.only_if_known or offer.schedule)",
        "bool(offer.schedule)",
        dedupe.test_a_former_home_takes_what_it_knows,
    ),
    *step(
        "keyed_jobs",
        " or offer.job.on_duplicate is OnDuplicate.REPLACE",
        "",
        corners.test_a_replacement_of_a_job_of_the_same_call_that_was_there_before,
    ),
    *step(
        "keyed_jobs",
        '        session.run_in("untake_keys", (self._queue_id,), [row[1] for row in new], first_id)\n',
        "",
        corners.test_a_resend_takes_no_other_key,
    ),
    *sql("untake_keys", "job_id >= $", "job_id >= 0 * $", corners.test_keys_of_a_call_of_which_one_is_taken),
    *step(
        "keyed_jobs",
        "            self._chains.untake(first_id)\n",
        "",
        corners.test_keys_of_a_call_of_which_one_is_taken,
    ),
    *sql("untake_chains", "job_id >= $", "job_id >= 0 * $", corners.test_keys_of_a_call_of_which_one_is_taken),
    *step(
        "chains",
        'if self._session.put(self._put, rows) < len(rows) and self._put == "add_chains":',
        "self._session.put(self._put, rows)\n        if False:",
        chains.test_a_chain_goes_through_several_queues,
    ),
    *sql("keys", "entry.until_ms IS NULL AND ", "", dedupe.test_a_window_begins_at_the_end),
    *sql("keys", "NOT IN (0, 1, 4, 8) THEN", "NOT IN (1, 4, 8) THEN", dedupe.test_a_key_is_taken_while_its_job_is_live),
    *sql("keys", "NOT IN (0, 1, 4, 8) THEN", "NOT IN (0, 4, 8) THEN", dedupe.test_a_key_is_taken_while_its_job_is_live),
    *sql(
        "keys", "NOT IN (0, 1, 4, 8) THEN", "NOT IN (0, 1, 8) THEN", corners.test_the_key_of_a_job_that_waits_is_taken
    ),
    *sql(
        "keys",
        "NOT IN (0, 1, 4, 8) THEN 0",
        "NOT IN (0, 1, 4, 8) THEN NULL",
        dedupe.test_a_key_is_taken_while_its_job_is_live,
    ),
    *sql(
        "keys",
        "entry.queue_id = $",
        "entry.queue_id >= $",
        dedupe.test_keys_are_those_of_a_queue_and_of_a_serialize_key,
    ),
    *step(
        "extensions",
        "return self.until_ms is None or self.until_ms > now_ms",
        "return self.until_ms is None or self.until_ms >= now_ms",
        dedupe.test_a_window_begins_at_the_end,
    ),
    *step(
        "extensions",
        "return self.until_ms is None or self.until_ms > now_ms",
        "return self.until_ms is None",
        dedupe.test_a_window_begins_at_the_end,
    ),
    *step(
        "keyed_jobs",
        "if sent is not None and sent.stands(self._now_ms):",
        "if False:",
        dedupe.test_a_resend_gets_the_first_answer_until_ten_minutes_after_the_end,
    ),
    *step(
        "keyed_jobs",
        "if sent is not None and sent.stands(self._now_ms):",
        "if sent is not None:",
        dedupe.test_a_send_id_that_comes_again_counts_for_its_new_slot,
    ),
    *step(
        "keyed_jobs",
        "if job.on_duplicate == OnDuplicate.REJECT:",
        "if False:",
        dedupe.test_reject_names_the_job_that_stands,
    ),
    *step("keyed_jobs", "if priority != job.priority:", "if False:", dedupe.test_replace_changes_a_pending_job_alone),
    *step(
        "keyed_jobs",
        "if state in STATES_OF[JobState.PENDING]:",
        "if True:",
        dedupe.test_replace_changes_a_pending_job_alone,
    ),
    *step(
        "keyed_jobs",
        "            self._note_not_replaced(running)\n",
        "",
        dedupe.test_a_job_in_progress_says_from_when_on_newer_arguments_were_not_taken,
    ),
    *step(
        "keyed_jobs",
        "[0][0].endswith(NOT_REPLACED_END):",
        "[0][0].endswith(chr(0)):",
        dedupe.test_a_job_in_progress_says_from_when_on_newer_arguments_were_not_taken,
    ),
    *step(
        "keyed_jobs",
        "if send and offered.outcome in (OfferOutcome.KEPT, OfferOutcome.REPLACED):",
        "if False:",
        dedupe.test_a_resend_of_what_was_kept_is_kept_again,
    ),
    *step(
        "keyed_jobs",
        "elif offer.only_if_known and not (serialize and self._chains.is_live(serialize)):",
        "elif False:",
        dedupe.test_a_former_home_takes_what_it_knows,
    ),
    *step(
        "keyed_jobs",
        "elif offer.only_if_known and offer.takes_no_jobs:",
        "elif False:",
        dedupe.test_a_former_home_takes_what_it_knows,
    ),
    *step(
        "keyed_jobs",
        'self._fired.get(offer.schedule, "") >= offer.mark:',
        'self._fired.get(offer.schedule, "") > offer.mark:',
        dedupe.test_a_schedule_fires_once_for_each_time,
    ),
    *step(
        "keyed_jobs",
        "if offer.schedule and offered.outcome <= OfferOutcome.REPLACED:",
        "if False:",
        dedupe.test_a_schedule_fires_once_for_each_time,
    ),
    *step("chains", "return bool(member.behind)", "return False", chains.test_a_barrier_keeps_the_first_job_waiting),
]

ENDS = [
    *sql(
        "end_keys",
        "CASE WHEN window_ms < 0 THEN",
        "CASE WHEN 1 = 0 THEN",
        dedupe.test_a_key_that_counts_while_its_job_is_kept,
    ),
    *sql(
        "end_keys",
        "CASE WHEN is_send_id = 1 THEN",
        "CASE WHEN 1 = 1 THEN",
        corners.test_a_key_names_its_last_job_also_behind_its_window,
    ),
    *step(
        "job_ends",
        "[each for each in going if each.keys.flags & HAS_WINDOW]",
        "[]",
        dedupe.test_a_window_outlasts_a_job_that_is_not_kept,
    ),
    *step("keyed_jobs", "if send or window_ms:", "if send:", dedupe.test_a_window_begins_at_the_end),
    *step(
        "keyed_jobs",
        "if send or window_ms:",
        "if window_ms:",
        dedupe.test_a_resend_gets_the_first_answer_until_ten_minutes_after_the_end,
    ),
    *step(
        "job_ends",
        "live if each.flags & HAS_ENTRY and each.flags & HAS_WINDOW]",
        "live if False]",
        dedupe.test_a_window_begins_at_the_end,
    ),
    *sql("drop_keys", "is_send_id = 0 AND", "", dedupe.test_a_send_id_is_remembered_after_a_removal),
    *sql("drop_keys_over", f"until_ms >= {MAX_TIME_MS}", "1 = 0", dedupe.test_a_key_that_counts_while_its_job_is_kept),
    *sql(
        "drop_keys_over",
        "THEN window_ms <= 0 ELSE",
        "THEN TRUE ELSE",
        dedupe.test_a_window_outlasts_a_job_that_is_not_kept,
    ),
    *step(
        "job_ends",
        "[] if stays is Stays.JOB else [each.job_id for each in ends if each.flags & (HAS_ENTRY | HAS_WINDOW)]",
        "[]",
        dedupe.test_cancel_and_delete_end_the_window,
    ),
    *step(
        "job_ends",
        "    if stays is Stays.WINDOWS:\n",
        "    if stays is not Stays.JOB:\n",
        dedupe.test_cancel_and_delete_end_the_window,
    ),
    *[
        mutation
        for store, ids in (
            ("sqlite", " AND job_id IN (SELECT value FROM json_each(?))"),
            ("mysql", " AND job_id IN %s"),
        )
        for statement in ("drop_keys", "drop_keys_over")
        for mutation in only(
            store,
            statement,
            ids,
            ids.replace(" AND job_id", " AND 5 NOT"),
            corners.test_an_earlier_job_of_a_key_takes_nothing_of_a_later_one_with_it,
        )
    ],
    *step(
        "chains",
        "if not behind[row[0]]], freed)",
        "], freed)",
        corners.test_whoever_becomes_the_first_behind_a_barrier_waits_for_it,
    ),
    *step("chains", "chain.behind == named[key]", "True", chains.test_a_barrier_keeps_the_first_job_waiting),
    *step(
        "chains",
        "if chain.place in per_key[key]",
        "if True",
        chains.test_the_end_of_one_that_waits_leaves_the_others_in_order,
    ),
    *step(
        "chains",
        "for head in heads if head.waiting",
        "for head in heads if False",
        chains.test_they_are_handed_out_one_at_a_time_in_order,
    ),
    *sql(
        "next_in_chains", "MIN(first.place)", "MAX(first.place)", chains.test_they_are_handed_out_one_at_a_time_in_order
    ),
    *sql("drop_unblocked", "waiting <= 0", "waiting < 0", corners.test_a_job_expires_while_it_waits),
    *sql(
        "chains_of_queue",
        "blocked.queue_id = $",
        "blocked.queue_id <> $",
        corners.test_those_that_a_deleted_queue_holds_up_come_before_its_other_jobs,
    ),
]

STOPS = [
    *step(
        "attempts",
        "if row[EXTENDED] and ends_cancelled(session, row[ID], row[EXTENDED], goes_on=True):",
        "if False:",
        stops.test_every_other_way_back_ends_as_cancelled,
    ),
    *step(
        "attempts",
        "if flags and outcome is not AckOutcome.SUCCEEDED and ends_cancelled(",
        "if False and ends_cancelled(",
        stops.test_what_runs_is_asked_to_stop,
    ),
    *step(
        "attempts",
        "if flags and outcome is not AckOutcome.SUCCEEDED and ends_cancelled(",
        "if flags and ends_cancelled(",
        stops.test_a_success_after_the_request_counts,
    ),
    *step(
        "attempts",
        "if flags and ends_cancelled(session, row[0], flags, goes_on=remaining > 0):",
        "if False:",
        stops.test_every_other_way_back_ends_as_cancelled,
    ),
    *step(
        "admin",
        "for job_id in stop_requests(session, stopping) if stopping else ():",
        "for job_id in ():",
        stops.test_what_runs_is_asked_to_stop,
    ),
    *step(
        "admin",
        "stopped = sorted(job_id for job_id in states if flags_of[job_id] & STOPPING)",
        "stopped: list[int] = []",
        stops.test_a_cancelled_job_is_retried_where_it_is_named_and_deleted_with_the_failed,
    ),
    *step(
        "admin",
        "each.only_if_updated_at_ms not in (None, updated[each.id]):",
        "False:",
        stops.test_other_times_bodies_and_attempts_of_pending_jobs,
    ),
]

EXPIRY = [
    *step("ready_jobs", "each.expires_at_ms <= now_ms}", "False}", stops.test_a_job_is_not_handed_out_after_its_expiry),
    *sql(
        "expired_jobs",
        "expiry.expires_at_ms <= $",
        "expiry.expires_at_ms < $",
        stops.test_a_job_is_not_handed_out_after_its_expiry,
    ),
    *sql(
        "expired_jobs",
        "job.state IN (0, 4, 8)",
        "job.state IN (0, 1, 4, 8)",
        stops.test_a_job_expires_that_is_to_be_retried,
    ),
    *sql("expired_jobs", "job.state IN (0, 4, 8)", "job.state IN (0, 8)", corners.test_a_job_expires_while_it_waits),
]

AGAIN = [
    *step(
        "keyed_jobs",
        "entry is not None and entry.until_ms is None and entry.job_id != job_id:",
        "False:",
        dedupe.test_a_retry_leaves_a_job_whose_key_has_another_live_one,
    ),
    *step(
        "keyed_jobs",
        "entry is not None and entry.until_ms is None and entry.job_id != job_id:",
        "entry is not None and entry.job_id != job_id:",
        dedupe.test_a_retry_leaves_a_job_whose_key_has_another_live_one,
    ),
    *step("admin", "if flags & COUNTS_AGAIN]", "]", corners.test_a_dead_letter_that_is_retried_where_it_is_has_no_key),
    *sql(
        "forget_send_ids",
        "until_ms <= $",
        "until_ms <= 0 * $",
        dedupe.test_a_retry_lets_a_send_id_stand_that_still_stands,
        passed=True,
    ),
    *sql(
        "forget_send_ids",
        "until_ms <= $",
        "until_ms >= 0 * $",
        dedupe.test_a_retry_lets_a_send_id_stand_that_still_stands,
        passed=False,
    ),
    *step("key_entries", "if name not in stand", "", corners.test_windows_give_way_to_what_counts_here),
    *step("key_entries", "if entry.stands(now_ms)}", "}", corners.test_windows_give_way_to_what_counts_here),
    *sql("drop_window", "AND until_ms = $", "AND until_ms > 0 * $", corners.test_windows_give_way_to_what_counts_here),
]

KEYS = [*OFFERS, *ENDS, *STOPS, *EXPIRY, *AGAIN]
