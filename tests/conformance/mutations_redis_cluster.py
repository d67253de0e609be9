"""The guards of the Lua scripts for what servers agree on: records, notes, token buckets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance import test_identity, test_notes, test_records, test_tokens
from tests.conformance.mutation import Mutation
from tests.unit import test_redis_records


def lua(script: str, old: str, new: str, test: Callable[..., Any], **given: Any) -> Mutation:
    return Mutation("redis", script, old, new, test, given)


RECORDS = [
    lua(
        "records",
        "if redis.call('HGET', root, 'store') ~= ARGV[3] then return false end",
        "",
        test_identity.test_a_store_that_was_wiped_while_it_was_open_is_refused,
    ),
    lua(
        "put_records",
        "local is_newer = above(version, own)",
        "local is_newer = true",
        test_records.test_what_is_not_newer_changes_nothing,
    ),
    lua(
        "put_records",
        "math.min(#a, #b)",
        "math.min(#a, #b, 24)",
        test_records.test_versions_are_compared_as_texts_to_their_last_digit,
    ),
    lua(
        "put_records",
        "if above(deleted, own) then drop(name) end",
        "",
        test_records.test_a_queue_made_anew_after_a_deletion_that_was_missed_here_loses_its_old_jobs,
    ),
    lua(
        "put_records",
        "if above(deleted, own) then drop(name) end",
        "if deleted ~= '' then drop(name) end",
        test_records.test_a_deletion_that_was_heard_of_takes_no_jobs_a_second_time,
    ),
    lua(
        "put_records",
        "if version ~= deleted then call('HSETNX'",
        "if true then call('HSETNX'",
        test_records.test_a_mark_of_a_queue_that_never_was_here_makes_none,
    ),
    lua(
        "put_records",
        "if not string.find(name, '@', 1, true) then",
        "if true then",
        test_records.test_a_record_with_an_at_sign_is_no_queue,
    ),
    lua(
        "put_records",
        "call('ZREM', root .. ':marks', name)",
        "",
        test_redis_records.test_old_marks_go_in_steps_and_live_records_stay,
    ),
    lua(
        "collect",
        "if above(below, (parts(call('HGET', root .. ':records', name)))) then",
        "if true then",
        test_records.test_old_marks_are_removed_without_being_counted_and_nothing_else_is,
    ),
    lua(
        "records",
        "'(' .. ARGV[1]",
        "ARGV[1]",
        test_records.test_pages_show_what_came_in_the_order_in_which_it_came,
    ),
    lua(
        "records",
        "'LIMIT', 0, tonumber(ARGV[2])",
        "'LIMIT', 0, -1",
        test_records.test_pages_show_what_came_in_the_order_in_which_it_came,
    ),
]

NOTES = [
    lua(
        "put_note",
        "if ARGV[6] ~= '' and tonumber(ARGV[6]) ~= version then return 0 end",
        "",
        test_notes.test_a_write_that_expects_another_version_changes_nothing,
        kind="guarded",
    ),
    lua(
        "put_note",
        "if known and tonumber(redis.call('ZSCORE', until_key, name)) > now then",
        "if known then",
        test_notes.test_a_note_is_there_until_it_expires_and_then_counts_as_none,
        kind="guarded",
    ),
    lua(
        "put_note",
        "if expires > now then",
        "if true then",
        test_notes.test_a_note_written_with_a_time_that_is_over_is_removed,
        kind="guarded",
        before_ms=0,
    ),
    lua(
        "put_note",
        "if beyond > 0 then",
        "if false then",
        test_notes.test_beyond_the_number_to_keep_the_first_to_expire_go,
        kind="guarded",
    ),
    lua(
        "notes",
        "'(' .. ARGV[2]",
        "ARGV[2]",
        test_notes.test_a_note_is_there_until_it_expires_and_then_counts_as_none,
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
        "math.min(tonumber(ARGV[2]), math.floor(tokens + 1e-9))",
        "math.floor(tokens + 1e-9)",
        test_tokens.test_no_more_is_given_than_is_wanted,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "return {math.max(0, granted), wait}",
        "return {granted, wait}",
        test_tokens.test_tokens_that_are_given_back_are_there_again_up_to_the_capacity,
        queue="bucket",
    ),
    lua(
        "take_tokens",
        "local tokens, at = 1, now",
        "local tokens, at = capacity, now",
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

CLUSTER = [*RECORDS, *NOTES, *TOKENS]
