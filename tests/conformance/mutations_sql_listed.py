"""The guards of the SQL statements and steps for claims of named jobs, and for claims that expire by a list."""

from __future__ import annotations

from tests.conformance import test_claims_of_named_jobs as named
from tests.conformance import test_listed_expiry as listed
from tests.conformance.mutations_sql_ways import lock, only, sql, step

CLAIMS = [
    *sql("listed", "queue_id = $", "queue_id > 0 * $", named.test_in_a_queue_that_is_not_there_nothing_is_claimed),
    *lock("listed", "FOR UPDATE", named.test_of_many_at_once_one_gets_the_job),
    *step(
        "ready_jobs",
        "if row and row[1] != job.priority:",
        "if False:",
        named.test_each_job_is_answered_in_its_place,
    ),
    *step(
        "ready_jobs",
        "            rows[job.id] = (*row, _IN_PROGRESS)\n",
        "",
        named.test_each_job_is_answered_in_its_place,
    ),
    *step(
        "ready_jobs",
        "elif job.id not in alive:",
        "elif False:",
        named.test_a_job_whose_time_is_over_has_ended_before_maintenance_says_so,
    ),
    *step(
        "ready_jobs",
        "elif state == WAITING:",
        "elif False:",
        named.test_a_job_behind_another_one_of_its_serialize_key_stays,
    ),
    *step("ready_jobs", "elif row[2] > now_ms:", "elif False:", named.test_each_job_is_answered_in_its_place),
    *step(
        "ready_jobs",
        "elif row[2] > now_ms:",
        "elif row[2] >= now_ms:",
        named.test_a_retry_comes_with_what_has_changed_since,
    ),
    *step(
        "ready_jobs",
        "elif len(batch) >= room or",
        "elif len(batch) > room or",
        named.test_within_the_quota_what_is_beyond_it_stays,
    ),
    *step(
        "ready_jobs",
        "            if room_bytes < 0 and batch:\n                break\n",
        "",
        named.test_bodies_end_the_answer_and_the_first_always_comes,
    ),
    *step(
        "ready_jobs",
        "if room_bytes < 0 and batch:",
        "if room_bytes < 0:",
        named.test_bodies_end_the_answer_and_the_first_always_comes,
    ),
    *step(
        "ready_jobs",
        "min(request.max_bytes, SLICE_BYTES)",
        "request.max_bytes",
        named.test_large_bodies_come_a_slice_at_a_time,
    ),
]

EXPIRY = [
    *step(
        "attempts",
        " and row[1] not in left_alone",
        "",
        listed.test_a_queue_that_lists_its_claims_keeps_them_from_expiring,
    ),
    *step(
        "attempts",
        "        if left_alone:\n",
        "        if False:\n",
        listed.test_many_claims_that_are_left_alone_take_nothing_of_the_limit,
    ),
    *[
        mutation
        for store, old, new in (
            ("sqlite", "AND queue_id NOT IN", "AND 0 NOT IN"),
            ("mysql", "AND queue_id NOT IN", "AND 0 NOT IN"),
            ("postgres", "AND +queue_id <> ALL", "AND 0 <> ALL"),
        )
        for mutation in only(
            store,
            "expired_claims_of_others",
            old,
            new,
            listed.test_many_claims_that_are_left_alone_take_nothing_of_the_limit,
        )
    ],
    *sql(
        "expired_claims_of_others",
        "claim_expires_at_ms < $",
        "claim_expires_at_ms <= $",
        listed.test_behind_claims_that_are_left_alone_none_expires_before_its_time,
    ),
    *only(
        "sqlite",
        "expired_claims_of_others",
        "LIMIT ?",
        "LIMIT ? + 99",
        listed.test_many_claims_that_are_left_alone_take_nothing_of_the_limit,
    ),
    *sql(
        "expired_claims_of",
        "claim_expires_at_ms < $",
        "claim_expires_at_ms <= $",
        listed.test_a_claim_that_ends_now_is_not_listed_beside_one_that_has,
    ),
    *sql(
        "expired_claims_of",
        "ORDER BY claim_expires_at_ms",
        "ORDER BY claim_expires_at_ms DESC",
        listed.test_the_oldest_of_each_queue_come_first_up_to_the_limit,
    ),
    *step(
        "attempts",
        "if claim.id not in ending and claim.id in rows and _is_fresh(claim, rows[claim.id]):",
        "if claim.id not in ending and claim.id in rows:",
        listed.test_of_a_job_named_twice_the_first_that_applies_counts,
    ),
    *step(
        "attempts",
        "if claim.id not in ending and",
        "if",
        listed.test_of_a_job_named_twice_the_first_that_applies_counts,
    ),
    *step(
        "attempts",
        "min(now_ms + claims[ending[job_id]].retry_delay_ms, MAX_TIME_MS)",
        "now_ms + claims[ending[job_id]].retry_delay_ms",
        listed.test_a_delay_ends_at_the_end_of_time,
    ),
    *step("attempts", "claim[1] in to_stop", "False", listed.test_what_is_listed_says_what_is_left_of_the_job),
]

LISTED = [*CLAIMS, *EXPIRY]
