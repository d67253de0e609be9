"""The guards of the Lua scripts for what few jobs have: keys, chains, requests to stop, expiry, homes."""

from __future__ import annotations

from tests.conformance import test_dedupe_keys as dedupe
from tests.conformance import test_key_corners as corners
from tests.conformance import test_replay, test_retry_listed
from tests.conformance import test_requests_to_stop as stops
from tests.conformance import test_serialize_keys as chains
from tests.conformance.mutations_redis_cluster import lua

OFFERS = [
    lua(
        "enqueue_extended",
        "if homes_changed(root, ARGV[5]) then return 0 end",
        "",
        dedupe.test_a_step_by_older_homes_stores_nothing,
    ),
    lua(
        "retry_listed",
        "if homes_changed(KEYS[1], ARGV[5]) then return -1 end",
        "",
        test_retry_listed.test_by_older_homes_none_comes_back,
    ),
    lua(
        "replay",
        "if homes_changed(root, ARGV[6]) then return -1 end",
        "",
        test_replay.test_by_older_homes_no_letter_goes_back,
    ),
    lua(
        "enqueue_extended",
        "if any_stands(base .. ':keys', names_at, name_count) then return nil end",
        "",
        dedupe.test_a_key_is_taken_while_its_job_is_live,
    ),
    lua(
        "enqueue_extended",
        "if any_stands(root .. ':heads', keys_at, key_count) then return nil end",
        "",
        chains.test_a_chain_goes_through_several_queues,
    ),
    lua(
        "enqueue_extended",
        "if until_ms == 0 or until_ms > now then return answer_entry(i, outcome, sent) end",
        "",
        dedupe.test_a_resend_gets_the_first_answer_until_ten_minutes_after_the_end,
    ),
    lua(
        "enqueue_extended",
        "if until_ms == 0 or until_ms > now then return answer_entry(i, outcome, sent) end",
        "do return answer_entry(i, outcome, sent) end",
        dedupe.test_a_send_id_that_comes_again_counts_for_its_new_slot,
    ),
    lua(
        "enqueue_extended",
        "if entry and (until_ms == 0 or until_ms > now) then",
        "if entry and until_ms == 0 then",
        dedupe.test_a_window_begins_at_the_end,
    ),
    lua(
        "enqueue_extended",
        "if entry and (until_ms == 0 or until_ms > now) then",
        "if entry and (until_ms == 0 or until_ms >= now) then",
        dedupe.test_a_window_begins_at_the_end,
    ),
    lua(
        "enqueue_extended",
        "if on_duplicate == ON_REJECT then",
        "if false then",
        dedupe.test_reject_names_the_job_that_stands,
    ),
    lua(
        "enqueue_extended",
        "if on_duplicate ~= ON_REPLACE or until_ms ~= 0 then",
        "if until_ms ~= 0 then",
        dedupe.test_offers_see_those_before_them,
    ),
    lua(
        "enqueue_extended",
        "if not state then return nil end",
        "state = state or 0",
        dedupe.test_replace_changes_a_pending_job_alone,
    ),
    lua(
        "enqueue_extended",
        "if ending and sub(status, -#ending) == ending then return end",
        "",
        dedupe.test_a_job_in_progress_says_from_when_on_newer_arguments_were_not_taken,
    ),
    lua(
        "enqueue_extended",
        "unpack_record(changed and CHANGED or CLAIM, changed or claim)",
        "now",
        dedupe.test_a_job_in_progress_says_from_when_on_newer_arguments_were_not_taken,
    ),
    lua(
        "enqueue_extended",
        "if priority ~= priority_of[i] then",
        "if false then",
        dedupe.test_replace_changes_a_pending_job_alone,
    ),
    lua(
        "enqueue_extended",
        "if send and (code == KEPT_THAT or code == REPLACED) then",
        "if false then",
        dedupe.test_a_resend_of_what_was_kept_is_kept_again,
    ),
    lua(
        "enqueue_extended",
        "if flags % 2 == IF_KNOWN then",
        "if false then",
        dedupe.test_a_former_home_takes_what_it_knows,
    ),
    lua(
        "enqueue_extended",
        "if is_flagged(flags, TAKES_NO_JOBS) then",
        "if false then",
        dedupe.test_a_former_home_takes_what_it_knows,
    ),
    lua(
        "enqueue_extended",
        "fired[schedule] >= mark then",
        "fired[schedule] > mark then",
        dedupe.test_a_schedule_fires_once_for_each_time,
    ),
    lua(
        "enqueue_extended",
        "if schedule and code <= REPLACED then",
        "if false then",
        dedupe.test_a_schedule_fires_once_for_each_time,
    ),
    lua(
        "enqueue_extended",
        "if not head and behind ~= '' then",
        "if false then",
        chains.test_a_barrier_keeps_the_first_job_waiting,
    ),
]

ENDS = [
    lua(
        "ack",
        "if is_live then until_ms = keep_for < 0 and KEPT or now + keep_for end",
        "if is_live then until_ms = now end",
        dedupe.test_a_window_begins_at_the_end,
    ),
    lua(
        "ack",
        "local has_window = until_ms > now and until_ms ~= KEPT",
        "local has_window = false",
        dedupe.test_a_window_outlasts_a_job_that_is_not_kept,
    ),
    lua(
        "raise_marks",
        "mark < ARGV[at + 1]",
        "true",
        dedupe.test_a_mark_comes_to_a_new_home_and_never_falls,
    ),
    lua(
        "prune",
        "':buckets', ':fired'}",
        "':buckets'}",
        dedupe.test_the_mark_of_a_schedule_goes_with_the_tombstone_of_its_entry,
    ),
    lua(
        "prune",
        "local has_window = until_ms > now and until_ms ~= KEPT",
        "local has_window = until_ms > now",
        dedupe.test_a_key_that_counts_while_its_job_is_kept,
    ),
    *[
        lua(
            script,
            "if stays == NOTHING or (stays == WINDOWS and not has_window) then",
            "if not has_window then",
            dedupe.test_cancel_and_delete_end_the_window,
        )
        for script in ("cancel", "delete_jobs")
    ],
    *[
        lua(
            script,
            "if entry and sub(entry, 1, 8) == id then",
            "if entry then",
            corners.test_an_earlier_job_of_a_key_takes_nothing_of_a_later_one_with_it,
        )
        for script in ("delete_listed", "prune")
    ],
    lua(
        "ack",
        "if e.expires > 0 and e.expires <= now then return end",
        "",
        corners.test_a_job_that_expired_while_it_waited_is_freed_to_nobody,
    ),
    lua(
        "cancel",
        "    if behind == BARRIER then",
        "    if false then",
        chains.test_a_barrier_goes_with_the_last_job_behind_it,
    ),
    lua(
        "lift_barriers",
        "if call('HGET', root .. ':barriers', ARGV[at]) == ARGV[at + 1] then",
        "if call('HGET', root .. ':barriers', ARGV[at]) then",
        chains.test_a_barrier_keeps_the_first_job_waiting,
    ),
]

STOPS = [
    *[
        lua(
            script,
            "if not ends_cancelled(base, id, extra, true) then return false end",
            "do return false end",
            stops.test_every_other_way_back_ends_as_cancelled,
        )
        for script in ("requeue", "requeue_undelivered", "checkpoint")
    ],
    *[
        lua(
            script,
            "if ends_cancelled(base, id, extra, expired.retries) then",
            "if false then",
            stops.test_every_other_way_back_ends_as_cancelled,
        )
        for script in ("expire_claims", "expire_disconnected")
    ],
    lua(
        "ack",
        "if ends_cancelled(base, id, extra, remaining > 0) then state, remaining = CANCELLED, 0 end",
        "",
        stops.test_what_runs_is_asked_to_stop,
    ),
    lua(
        "cancel",
        "if is_known and (e.by ~= '' or by == '') then return nil end",
        "",
        stops.test_what_runs_is_asked_to_stop,
    ),
    lua(
        "retry_listed",
        "if is_flagged(record.flags, STOP) then",
        "if false then",
        stops.test_a_cancelled_job_is_retried_where_it_is_named_and_deleted_with_the_failed,
    ),
    lua("heartbeat", "sub(claim, DESCRIPTOR_AT) ~= ARGV[at + 2]", "false", stops.test_a_heartbeat_of_a_lost_claim),
    lua(
        "heartbeat",
        "if parts % 2 == 0 then fraction = old end",
        "",
        stops.test_progress_is_shown_and_what_is_not_told_stays,
    ),
    lua(
        "heartbeat",
        "if parts < 2 then text = sub(before, $PROGRESS_BYTES + 1) end".replace("$PROGRESS_BYTES", "16"),
        "",
        stops.test_progress_is_shown_and_what_is_not_told_stays,
    ),
    lua(
        "reschedule",
        "if known ~= tonumber(updated) then code = '4' end",
        "",
        stops.test_other_times_bodies_and_attempts_of_pending_jobs,
    ),
]

EXPIRY = [
    lua("claim", "write('ZREM', pending, out)", "", stops.test_jobs_behind_many_that_expired_are_found),
    lua("count_ready", "write('ZREM', pending, out)", "", stops.test_a_job_is_not_handed_out_after_its_expiry),
    lua(
        "ack",
        "expire_again(root, base, queue, expiring)",
        "",
        stops.test_a_job_expires_that_is_to_be_retried,
    ),
    lua(
        "expire_jobs",
        "if into_dead == nil then into_dead = ARGV[5] == '1' end",
        "",
        stops.test_a_job_expires_that_is_to_be_retried,
    ),
]

AGAIN = [
    lua(
        "retry_failed",
        "not (name and (taken[name] or taken_by(base, e, id))) then",
        "not (name and taken_by(base, e, id)) then",
        dedupe.test_a_retry_leaves_a_job_whose_key_has_another_live_one,
    ),
    lua(
        "retry_failed",
        "not (name and (taken[name] or taken_by(base, e, id))) then",
        "not (name and taken[name]) then",
        dedupe.test_a_retry_leaves_a_job_whose_key_has_another_live_one,
    ),
    lua(
        "retry_failed",
        "blocked = count + retried, blocked + #ids - retried",
        "blocked = count + retried, 1000",
        dedupe.test_retries_go_on_behind_those_that_stay,
    ),
    lua(
        "retry_listed",
        "if e and is_flagged(e.flags, HISTORY) then e.dedupe, e.serialize, e.send = '', '', '' end",
        "",
        corners.test_a_dead_letter_that_is_retried_where_it_is_has_no_key,
    ),
    lua(
        "replay",
        "if e and taken_by(root .. ':q:' .. home, e, '') then return '' end",
        "",
        dedupe.test_a_replay_leaves_a_letter_whose_key_has_a_live_job,
    ),
    lua(
        "retry_failed",
        "if until_ms > e.now then",
        "if true then",
        dedupe.test_a_retry_lets_a_send_id_stand_that_still_stands,
        passed=True,
    ),
    lua(
        "put_windows",
        "if until_ms ~= 0 and until_ms <= tonumber(ARGV[1]) then",
        "if until_ms <= tonumber(ARGV[1]) then",
        corners.test_windows_give_way_to_what_counts_here,
    ),
    lua(
        "put_windows",
        "if until_ms ~= 0 and until_ms <= tonumber(ARGV[1]) then",
        "if until_ms ~= 0 then",
        corners.test_windows_give_way_to_what_counts_here,
    ),
    lua(
        "drop_windows",
        "if entry and until_ms == tonumber(ARGV[at + 2]) then",
        "if entry then",
        corners.test_windows_give_way_to_what_counts_here,
    ),
]

KEYS = [*OFFERS, *ENDS, *STOPS, *EXPIRY, *AGAIN]
