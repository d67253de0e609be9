"""The steps that keep the trails of jobs, on all stores."""

from __future__ import annotations

from tests.conformance import test_trails
from tests.conformance.mutations_dynamodb import here
from tests.conformance.mutations_redis import lua
from tests.conformance.mutations_sql_ways import step

TRAILS = [
    lua(
        "ack",
        "if #failed > 0 then keep_attempts(root, base, queue, failed, now) end",
        "",
        test_trails.test_attempts_that_failed_before_are_kept_with_their_times_and_workers,
    ),
    lua(
        "ack",
        "kept = sub(kept, ATTEMPT_BYTES + 1 + byte(kept, ATTEMPT_BYTES))",
        "kept = kept",
        test_trails.test_the_last_attempts_are_kept_and_numbered_on,
    ),
    lua(
        "expire_claims",
        "\n  keep_attempts(root, base, queue, ending, now)",
        "",
        test_trails.test_attempts_whose_claims_expired_or_were_released,
    ),
    lua(
        "retry_listed",
        "not has_end(records[i], claim, from, to)",
        "true",
        test_trails.test_attempts_whose_claims_expired_or_were_released,
    ),
    lua(
        "retry_failed",
        "keep_last_attempts(root, base, queue, ids, eligible, finished, state == CANCELLED and 4 or 2)",
        "",
        test_trails.test_an_operators_retry_keeps_the_attempt_that_failed,
    ),
    lua(
        "put_trails",
        "is_there and redis.call('HEXISTS', base .. ':trails', id) == 0",
        "is_there",
        test_trails.test_a_job_that_came_from_another_store_goes_on_with_its_trail,
    ),
    *step(
        "attempts",
        "keep_attempts(session, dict.fromkeys(ids, AttemptOutcome.FAILED), now_ms)",
        "pass",
        test_trails.test_attempts_that_failed_before_are_kept_with_their_times_and_workers,
    ),
    *step(
        "attempts",
        "keep_attempts(session, expired, now_ms)",
        "pass",
        test_trails.test_attempts_whose_claims_expired_or_were_released,
    ),
    *step(
        "admin",
        "    keep_last_attempts(session, ids)\n",
        "",
        test_trails.test_an_operators_retry_keeps_the_attempt_that_failed,
    ),
    *step(
        "trails",
        "row[PRIORITY] == job.priority and row[RECORD] is row[LOG] is None",
        "row[PRIORITY] == job.priority",
        test_trails.test_a_job_that_came_from_another_store_goes_on_with_its_trail,
    ),
    here(
        "attempt_steps",
        "job.keep_attempt(now_ms, AttemptOutcome.FAILED)",
        "pass",
        test_trails.test_attempts_that_failed_before_are_kept_with_their_times_and_workers,
    ),
    here(
        "operators",
        "job.keep_last_attempt()",
        "pass",
        test_trails.test_an_operators_retry_keeps_the_attempt_that_failed,
    ),
    lua(
        "heartbeat",
        "if not string.find(log, line, 1, true) then log = log .. line end",
        "log = log .. line",
        test_trails.test_a_line_that_is_sent_twice_is_there_once,
    ),
    lua(
        "heartbeat",
        "or bytes > ",
        "and bytes > ",
        test_trails.test_only_the_last_lines_are_kept,
    ),
    *step(
        "attempts",
        "logging = [each for each in alive if each.log_lines]",
        "logging = [each for each in heartbeats if each.log_lines]",
        test_trails.test_lines_of_a_lost_claim_are_not_kept,
    ),
    here(
        "attempt_steps",
        "attempt_of(job.attempts), request.log_lines",
        "1, request.log_lines",
        test_trails.test_lines_are_kept_with_their_times_and_attempts,
    ),
]
