"""The guards of permits and rooms of groups, in the SQL statements and steps and in the Lua scripts."""

from __future__ import annotations

from tests.conformance import test_permits as permits
from tests.conformance.mutations_redis_cluster import lua
from tests.conformance.mutations_sql_ways import lock, sql, step

LIMIT = permits.test_a_group_has_no_more_permits_than_its_limit
AGAIN = permits.test_a_job_that_is_claimed_again_has_one_permit
REFUSED = permits.test_a_job_that_gets_no_permit_keeps_the_one_that_it_has
OTHER_CLAIM = permits.test_the_permit_of_another_claim_stays
WHICHEVER = permits.test_a_permit_goes_whichever_claim_it_has
NO_TOKEN = permits.test_what_the_maximum_forbids_costs_no_token
IN_TURN = permits.test_shards_that_wait_are_told_in_turn
CHECKED = permits.test_permits_are_checked_when_their_time_comes
FULL_AGAIN = permits.test_a_bucket_that_was_full_again_may_be_forgotten
OVER_REQUESTS = permits.test_room_is_used_over_the_requests_of_one_call
OVER_PRIORITIES = permits.test_the_most_of_a_group_counts_over_priorities
BEFORE_JOBS = permits.test_a_group_is_without_room_before_it_has_jobs
WAITS = permits.test_a_shard_waits_until_its_time_whatever_else_the_group_does
ROOM_ENDS = permits.test_a_group_without_room_is_passed_over_until_its_time
LIFTED = permits.test_a_group_gets_as_many_as_it_has_room_for

PERMITS = [
    # -- permits --
    *step("group_permits", "request.concurrency - held[group])", "request.concurrency)", LIMIT),
    *step("group_permits", "known.get(holder) == group", "False", AGAIN),
    *step("group_permits", "zip(own[:granted],", "zip(own,", REFUSED),
    *step(
        "group_permits",
        'if by_holder[bytes(holder)].claim_descriptor in ("", claim_descriptor):',
        "if True:",
        OTHER_CLAIM,
    ),
    *step("group_permits", 'in ("", claim_descriptor):', "in (claim_descriptor,):", WHICHEVER),
    *step("group_permits", "take(state.bucket, wanted,", "take(state.bucket, len(request.keys),", NO_TOKEN),
    *step("group_permits", "state.waiting[permits:] + state.waiting[:permits]", "state.waiting", IN_TURN),
    *sql("put_permits_off", "SET check_at_ms = $", "SET check_at_ms = check_at_ms + 0 * $", CHECKED),
    *sql("past_permit_groups", "until_ms <= $", "until_ms > 0 * $", FULL_AGAIN),
    *step(
        "group_permits",
        "max(self.full_at_ms, self.until_ms) if self.waiting else self.full_at_ms",
        "self.full_at_ms",
        WAITS,
    ),
    *lock("lock_permits", " FOR UPDATE", permits.test_however_many_ask_at_once_a_group_has_no_more_permits),
    lua("take_permits", "concurrency - count_of(base, group)", "concurrency", LIMIT),
    lua("take_permits", "known[place + i] ~= group", "true", AGAIN),
    lua(
        "take_permits", "for i = place + 1, place + granted do\n    if", "for i = place + 1, count do\n    if", REFUSED
    ),
    lua("end_permits", "claim == named or named == ''", "true", OTHER_CLAIM),
    lua("end_permits", " or named == ''", "", WHICHEVER),
    lua("take_permits", "shards = granted, beside", "shards = wanted, beside", NO_TOKEN),
    lua("end_permits", "for _ = 1, math.min(count, #shards) do", "for _ = 1, 0 do", IN_TURN),
    lua("due_permits", "later[2 * i] = ARGV[4],", "later[2 * i] = ARGV[2],", CHECKED),
    lua("due_permits", "times, '-inf', now, 'LIMIT'", "times, '-inf', '+inf', 'LIMIT'", FULL_AGAIN),
    lua("take_permits", "tonumber(redis.call('ZSCORE', past, group) or 0)", "0", WAITS),
    # -- rooms --
    *step("group_lines", "jobs=max(0, room.jobs - count)", "jobs=room.jobs", OVER_REQUESTS),
    *step("group_lines", "room is None else room.jobs) - of_others", "room is None else room.jobs)", OVER_PRIORITIES),
    *step("group_permits", "if group in with_jobs or not jobs\n", "if group in with_jobs\n", BEFORE_JOBS),
    *step("group_lines", "if until_ms > now_ms:", "if True:", ROOM_ENDS),
    *step("group_permits", "[each for each in here if names[each].jobs]", "[]", LIFTED),
    lua("claim", "room.left = room.left - one.served", "", OVER_REQUESTS),
    lua("put_rooms", "if has_jobs[i] or jobs == '0' then", "if has_jobs[i] then", BEFORE_JOBS),
    lua("claim", "if jobs and tonumber(until_ms) > now then", "if jobs then", ROOM_ENDS),
    lua("put_rooms", "if #free > 0 then lines.free(priority, free) end", "", LIFTED),
]
