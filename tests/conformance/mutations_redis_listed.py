"""The guards of the Lua scripts for claims of named jobs, and for claims that expire by a list."""

from __future__ import annotations

from tests.conformance import test_claims_of_named_jobs as named
from tests.conformance import test_listed_expiry as listed
from tests.conformance.mutations_redis_cluster import lua

CLAIMS = [
    lua(
        "claim_listed",
        "if not queue_entry then return false end",
        "queue_entry = queue_entry or ''",
        named.test_in_a_queue_that_is_not_there_nothing_is_claimed,
    ),
    lua(
        "claim_listed",
        "if expires > 0 and expires <= now then return ENDED end",
        "",
        named.test_a_job_whose_time_is_over_has_ended_before_maintenance_says_so,
    ),
    lua(
        "claim_listed",
        "expires > 0 and expires <= now",
        "expires > 0 and expires < now",
        named.test_a_job_whose_time_is_over_has_ended_before_maintenance_says_so,
    ),
    lua(
        "claim_listed",
        "if state == WAITING then return BEHIND end",
        "",
        named.test_a_job_behind_another_one_of_its_serialize_key_stays,
    ),
    lua(
        "claim_listed",
        "if tonumber(run_after) > now then return NOT_DUE end",
        "",
        named.test_each_job_is_answered_in_its_place,
    ),
    lua(
        "claim_listed",
        "tonumber(run_after) > now",
        "tonumber(run_after) >= now",
        named.test_a_retry_comes_with_what_has_changed_since,
    ),
    lua(
        "claim_listed",
        "return (free <= 0 or has_groups",
        "return (has_groups",
        named.test_within_the_quota_what_is_beyond_it_stays,
    ),
    lua("claim_listed", "free - 1, true", "free, true", named.test_within_the_quota_what_is_beyond_it_stays),
    lua(
        "claim_listed",
        "if room < 0 and any then break end",
        "",
        named.test_bodies_end_the_answer_and_the_first_always_comes,
    ),
    lua(
        "claim_listed",
        "if room < 0 and any then break end",
        "if room < 0 then break end",
        named.test_bodies_end_the_answer_and_the_first_always_comes,
    ),
    lua(
        "claim_listed",
        "ARGV[6] == '1' and own > 0",
        "own > 0",
        named.test_the_time_out_of_the_job_itself_counts_before_a_default,
    ),
    lua(
        "claim_listed",
        "status_bytes > 0 and not changed",
        "status_bytes > 0",
        named.test_a_retry_comes_with_what_has_changed_since,
    ),
    lua(
        "claim_listed",
        "if status_bytes > 0 and not changed then",
        "if false then",
        named.test_a_status_from_the_enqueue_is_there_at_the_end,
    ),
    lua(
        "claim_listed",
        "call('ZADD', root .. ':claimed', 'LT',",
        "call('ZADD', root .. ':claimed',",
        named.test_a_claim_that_lasts_longer_does_not_hide_an_earlier_one,
    ),
    lua(
        "claim_listed",
        "if any then call('ZADD', root .. ':claimed'",
        "if false then call('ZADD', root .. ':claimed'",
        named.test_a_claim_expires_as_any_other,
    ),
]

EXPIRY = [
    lua(
        "expire_claims",
        "if rules.budget then expire_in(queue, rules) end",
        "rules.budget = rules.budget or 0\n  expire_in(queue, rules)",
        listed.test_a_queue_that_lists_its_claims_keeps_them_from_expiring,
    ),
    lua(
        "expire_claims",
        "left + QUEUES + left_alone",
        "left",
        listed.test_many_claims_that_are_left_alone_take_nothing_of_the_limit,
    ),
    lua(
        "expired_claims",
        "base .. ':expiry', '-inf', '(' .. now",
        "base .. ':expiry', '-inf', now",
        listed.test_a_claim_that_ends_now_is_not_listed_beside_one_that_has,
    ),
    lua(
        "expired_claims",
        "'WITHSCORES', 'LIMIT', 0, left)",
        "'WITHSCORES')",
        listed.test_the_oldest_of_each_queue_come_first_up_to_the_limit,
    ),
    lua(
        "expired_claims",
        "if first[2] then call('ZADD', root .. ':claimed', first[2], queue) end",
        "",
        listed.test_a_queue_is_listed_again_whatever_became_of_its_earliest_claim,
    ),
    lua(
        "expired_claims",
        "is_to_stop(extras[n]) and extra_of(extras[n]).by ~= '' and 1 or 0",
        "0",
        listed.test_what_is_listed_says_what_is_left_of_the_job,
    ),
    lua("expire_listed", "not codes[id] and ", "", listed.test_what_is_not_under_that_claim_is_ignored),
    lua(
        "expire_listed",
        "redis.call('ZSCORE', base .. ':s:1:' .. ARGV[at], id)",
        "redis.call('ZSCORE', base .. ':expiry', id)",
        listed.test_what_is_not_under_that_claim_is_ignored,
    ),
    lua(
        "expire_listed",
        "sub(claim, DESCRIPTOR_AT) == ARGV[at + 2]",
        "true",
        listed.test_what_is_not_under_that_claim_is_ignored,
    ),
    lua(
        "expire_listed",
        "tonumber(redis.call('ZSCORE', base .. ':expiry', id)) == tonumber(ARGV[at + 3])",
        "true",
        listed.test_a_claim_that_was_renewed_since_stays,
        renew="heartbeat",
    ),
    lua(
        "expire_listed",
        "math.min(now + tonumber(ARGV[at + 4]), MAX_TIME)",
        "now + tonumber(ARGV[at + 4])",
        listed.test_a_delay_ends_at_the_end_of_time,
    ),
    lua(
        "expire_listed",
        "jobs[i][3] or at_once",
        "at_once",
        listed.test_a_claim_ends_as_expired_after_a_delay_of_its_own,
    ),
]

LISTED = [*CLAIMS, *EXPIRY]
