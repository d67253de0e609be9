"""The guards of the Lua scripts for what servers agree on, and for dead letters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinlater.model import JobState
from tests.conformance import (
    test_config_entries,
    test_dead_letters,
    test_ended_jobs,
    test_identity,
    test_kv,
    test_moved,
    test_one_failure,
    test_quotas,
    test_replay,
    test_retry_listed,
    test_tokens,
)
from tests.conformance.mutation import Mutation
from tests.unit import test_redis_config_entries


def lua(script: str, old: str, new: str, test: Callable[..., Any], **given: Any) -> Mutation:
    return Mutation("redis", script, old, new, test, given)


RECORDS = [
    lua(
        "list_config",
        "if redis.call('HGET', root, 'store') ~= ARGV[3] then return false end",
        "",
        test_identity.test_a_store_that_was_wiped_while_it_was_open_is_refused,
    ),
    lua(
        "put_config",
        "local is_newer = above(version, own)",
        "local is_newer = true",
        test_config_entries.test_what_is_not_newer_changes_nothing,
    ),
    lua(
        "put_config",
        "math.min(#a, #b)",
        "math.min(#a, #b, 24)",
        test_config_entries.test_versions_are_compared_as_texts_to_their_last_digit,
    ),
    lua(
        "put_config",
        "if above(deleted, own) then drop(name) end",
        "",
        test_config_entries.test_a_queue_made_anew_after_a_deletion_that_was_missed_here_loses_its_old_jobs,
    ),
    lua(
        "put_config",
        "if above(deleted, own) then drop(name) end",
        "if deleted ~= '' then drop(name) end",
        test_config_entries.test_a_deletion_that_is_known_takes_no_jobs_a_second_time,
    ),
    lua(
        "put_config",
        "if version ~= deleted then call('HSETNX'",
        "if true then call('HSETNX'",
        test_config_entries.test_a_tombstone_of_a_queue_that_never_was_here_makes_none,
    ),
    lua(
        "put_config",
        "if not string.find(name, '@', 1, true) then",
        "if true then",
        test_config_entries.test_an_entry_with_an_at_sign_is_no_queue,
    ),
    lua(
        "put_config",
        "call('ZREM', root .. ':marks', name)",
        "",
        test_redis_config_entries.test_old_tombstones_go_in_steps_and_live_entries_stay,
    ),
    lua(
        "prune",
        "if above(below, (parts(call('HGET', root .. ':records', name)))) then",
        "if true then",
        test_config_entries.test_old_tombstones_are_removed_without_being_counted_and_nothing_else_is,
    ),
    lua(
        "list_config",
        "'(' .. ARGV[1]",
        "ARGV[1]",
        test_config_entries.test_pages_show_what_came_in_the_order_in_which_it_came,
    ),
    lua(
        "list_config",
        "'LIMIT', 0, tonumber(ARGV[2])",
        "'LIMIT', 0, -1",
        test_config_entries.test_pages_show_what_came_in_the_order_in_which_it_came,
    ),
]

NOTES = [
    lua(
        "kv_put",
        "if ARGV[6] ~= '' and tonumber(ARGV[6]) ~= version then return 0 end",
        "",
        test_kv.test_a_write_that_expects_another_version_changes_nothing,
        kind="guarded",
    ),
    lua(
        "kv_put",
        "if known and tonumber(redis.call('ZSCORE', until_key, name)) > now then",
        "if known then",
        test_kv.test_an_entry_is_there_until_it_expires_and_then_counts_as_none,
        kind="guarded",
    ),
    lua(
        "kv_put",
        "if expires > now then",
        "if true then",
        test_kv.test_an_entry_written_with_a_time_that_is_over_is_removed,
        kind="guarded",
        before_ms=0,
    ),
    lua(
        "kv_put",
        "if beyond > 0 then",
        "if false then",
        test_kv.test_beyond_the_number_to_keep_the_first_to_expire_go,
        kind="guarded",
    ),
    lua(
        "kv_list",
        "'(' .. ARGV[2]",
        "ARGV[2]",
        test_kv.test_an_entry_is_there_until_it_expires_and_then_counts_as_none,
        kind="guarded",
    ),
]

TOKENS = [
    lua(
        "take_tokens",
        "tokens = math.min(capacity, tokens + math.max(0, now - at) * per_second / 1000)",
        "tokens = tokens + math.max(0, now - at) * per_second / 1000",
        test_tokens.test_a_bucket_fills_by_its_rate_up_to_its_capacity,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "math.max(0, now - at)",
        "(now - at)",
        test_tokens.test_a_clock_that_is_behind_takes_from_the_same_bucket_and_fills_nothing,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "math.max(at, now)",
        "now",
        test_tokens.test_a_clock_that_is_behind_takes_from_the_same_bucket_and_fills_nothing,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "if at - now >= 10000 then at = now end",
        "",
        test_tokens.test_a_clock_that_was_far_ahead_for_a_moment_does_not_stop_the_bucket,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "math.min(wanted, math.floor(tokens + 1e-9))",
        "math.floor(tokens + 1e-9)",
        test_tokens.test_no_more_is_given_than_is_wanted,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "return math.max(0, granted), tokens",
        "return granted, tokens",
        test_tokens.test_tokens_that_are_refunded_are_there_again_up_to_the_capacity,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "tonumber(tokens or 1)",
        "tonumber(tokens or capacity)",
        test_tokens.test_a_bucket_begins_with_one_token,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "and per_second > 0 then",
        "then",
        test_tokens.test_a_rate_of_nothing_fills_nothing,
        queue="bucket",
    ),
]

SHARES = [
    lua(
        "claim",
        "sub(bounds, 1, 1) == '1'",
        "false",
        test_quotas.test_capped_claims_go_up_to_the_quota_and_no_further,
    ),
    lua(
        "claim",
        "sub(bounds, 1, 1) == '1'",
        "true",
        test_quotas.test_a_claim_that_is_not_capped_does_not_ask_for_the_quota,
    ),
    lua(
        "claim",
        "free = quota - call('ZCARD', expiry_key)",
        "free = quota",
        test_quotas.test_capped_claims_go_up_to_the_quota_and_no_further,
    ),
    lua("claim", "free = free - #out[1]", "", test_quotas.test_the_requests_of_a_call_share_the_room_in_their_order),
    lua(
        "set_quota",
        "if tonumber(ARGV[3]) > version then",
        "if tonumber(ARGV[3]) >= version then",
        test_quotas.test_an_older_version_is_ignored_and_version_zero_only_reads,
    ),
    lua("put_config", "{':shares', ':buckets'}", "{':buckets'}", test_quotas.test_a_queue_made_anew_has_no_quota),
]

DEAD_LETTERS = [
    lua(
        "ack",
        "local dead_letters = ARGV[from + 2] == '1'",
        "local dead_letters = false",
        test_dead_letters.test_a_final_failure_of_any_kind_is_pending_in_the_same_step,
        way="ack",
    ),
    lua(
        "ack",
        "keep_failed or dead_letters",
        "keep_failed",
        test_dead_letters.test_a_job_that_waits_to_be_copied_is_kept_although_failed_jobs_are_not,
        way="ack",
    ),
    lua(
        "expire_claims",
        "local index = dead_letters and ':dead' or ':ended:3'",
        "local index = ':ended:3'",
        test_dead_letters.test_a_final_failure_of_any_kind_is_pending_in_the_same_step,
        way="expiry",
    ),
    lua(
        "expire_claims",
        "local rules = rules_of[queue] or others",
        "local rules = others",
        test_dead_letters.test_each_queue_goes_by_its_own_rules_at_expiry,
    ),
    lua(
        "expire_disconnected",
        "ARGV[4] == '1'",
        "false",
        test_dead_letters.test_a_final_failure_of_any_kind_is_pending_in_the_same_step,
        way="release",
    ),
    lua(
        "retry_failed",
        "write('ZREM', base .. ':dead', ids)\n  keep_last",
        "keep_last",
        test_dead_letters.test_a_job_that_was_retried_is_not_copied,
        listed=False,
    ),
    lua(
        "retry_listed",
        "write('ZREM', base .. ':dead', ids)\n  keep_last",
        "keep_last",
        test_dead_letters.test_a_job_that_was_retried_is_not_copied,
        listed=True,
    ),
    lua(
        "retry_failed",
        "if moved_to ~= '' then link",
        "if false then link",
        test_dead_letters.test_a_job_that_was_retried_and_fails_again_is_a_dead_letter_again,
    ),
    lua(
        "retry_listed",
        "not seen[id] and ",
        "",
        test_retry_listed.test_the_others_stay_as_they_are,
    ),
    lua(
        "dead_letter",
        "if target and call('HEXISTS', root .. ':queues', target.queue) == 1 then",
        "if target then",
        test_dead_letters.test_a_failed_job_waits_until_its_queue_has_a_target_that_is_there,
    ),
    lua(
        "dead_letter",
        "left = left - count",
        "",
        test_dead_letters.test_copying_works_in_steps_of_at_most_the_limit_over_all_queues,
    ),
    lua(
        "dead_letter",
        "letter_status = target.attempts, cut(history .. status)",
        "letter_status = target.attempts, history .. status",
        test_dead_letters.test_the_status_of_a_letter_is_cut_at_its_end,
    ),
    lua(
        "dead_letter",
        "call('ZREM', base .. ':dead', id)",
        "",
        test_dead_letters.test_a_second_step_copies_nothing_more,
    ),
    lua(
        "replay",
        "if attempts == '' then return '' end",
        "if attempts == '' then origin, attempts = 'mail:', 1 end",
        test_replay.test_a_job_that_is_no_letter_stays,
    ),
    lua(
        "replay",
        "if call('HEXISTS', root .. ':queues', home) == 0 then return '' end",
        "",
        test_replay.test_a_letter_stays_where_the_queue_it_came_from_is_gone,
    ),
    lua(
        "replay",
        "if not state and call('ZREM', base .. ':s:' .. each .. ':' .. priority, id) == 1 then state = each end",
        "state = each",
        test_replay.test_only_letters_that_are_pending_or_failed_go_back,
        state=JobState.IN_PROGRESS,
    ),
    lua(
        "retry_failed",
        "if letter ~= 'held' and not",
        "if not",
        test_one_failure.test_jobs_that_stay_for_their_letters_take_nothing_of_the_limit,
    ),
    lua(
        "retry_listed",
        "for _, letter in ipairs(letters) do",
        "for _, letter in ipairs({}) do",
        test_one_failure.test_a_retry_takes_the_dead_letter_with_it,
        state="FAILED",
        listed=True,
    ),
    lua(
        "retry_listed",
        "if its_shard ~= shard then return 'held' end",
        "",
        test_one_failure.test_a_letter_that_went_to_another_shard_is_never_taken_for_deleted,
    ),
    lua(
        "retry_listed",
        "if moved_to ~= '' then return 'held' end",
        "",
        test_one_failure.test_a_job_whose_letter_runs_or_succeeded_stays_as_it_is,
        state="WITH ITS OWN",
        listed=True,
    ),
    lua(
        "replay",
        "if ARGV[7] == '1' then",
        "if true then",
        test_one_failure.test_without_marks_the_job_stays_as_servers_before_know_it,
    ),
    lua(
        "prune",
        "state == 3 and REPLAYED or 0",
        "state == 3 and CANCELLED or 0",
        test_one_failure.test_a_replayed_job_is_pruned_as_one_that_failed,
    ),
    lua(
        "mark_moved",
        "if its_base then",
        "if false then",
        test_one_failure.test_a_letter_that_went_to_another_shard_is_never_taken_for_deleted,
    ),
    lua(
        "mark_moved",
        "if claim and sub(claim, DESCRIPTOR_AT) == ARGV[at + 2] then",
        "if claim then",
        test_moved.test_a_job_under_another_claim_is_not_moved,
        claim="host:1:2:3:worker",
    ),
    lua(
        "mark_moved",
        "call('ZSCORE', base .. ':s:1:' .. priority, id)",
        "call('ZSCORE', base .. ':s:1:' .. priority, id) or '5'",
        test_moved.test_what_is_not_in_progress_is_not_moved,
        state=JobState.SUCCEEDED,
    ),
    lua(
        "prune",
        "local before = own[names[i]][state]",
        "local before = ARGV[state]",
        test_ended_jobs.test_a_queue_with_a_time_to_live_of_its_own_is_pruned_by_that,
        state=JobState.FAILED,
    ),
    lua(
        "prune",
        "if not own[queue] then",
        "if true then",
        test_ended_jobs.test_jobs_that_a_queue_keeps_for_longer_do_not_hide_those_of_other_queues,
        state=JobState.FAILED,
    ),
]

CLUSTER = [*RECORDS, *NOTES, *TOKENS, *SHARES, *DEAD_LETTERS]
