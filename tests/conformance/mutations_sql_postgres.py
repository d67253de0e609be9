"""The guards of PostgreSQL's statements that the other dialects have in other words, and its own lock."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinlater.model import JobState
from tests.conformance import (
    test_claims,
    test_concurrency,
    test_dead_letters,
    test_ended_jobs,
    test_ids,
    test_key_corners,
)
from tests.conformance.mutation import Mutation
from tests.conformance.mutations_sql import BOUNDED, KEPT_PLAN, KEPT_UNTIL, KEPT_UP_TO, SHORT
from tests.conformance.mutations_sql_cluster import NEVER_FALLS

ONE_CLAIMER = test_concurrency.test_claimers_never_share_a_job_and_leave_none
KEPT_ORDER = test_claims.test_within_a_priority_the_earlier_run_after_comes_first


def here(statement: str, old: str, new: str, test: Callable[..., Any], **given: Any) -> Mutation:
    return Mutation("postgres", statement, old, new, test, given)


BOTH_IDS = test_ids.test_ids_of_extended_jobs_follow_the_time_too_and_go_on_when_the_clock_goes_back
STATEMENTS = [
    here(
        "candidates",
        "priority = wanted.priority",
        "priority >= wanted.priority",
        test_claims.test_only_the_priorities_asked_for_are_handed_out,
    ),
    here("candidates", "ORDER BY run_after_ms, id", "ORDER BY id", KEPT_ORDER),
    here(
        "candidates",
        "ORDER BY run_after_ms, id",
        "ORDER BY run_after_ms, id DESC",
        test_claims.test_jobs_with_equal_run_after_come_by_age,
    ),
    here("heartbeat", "= coalesce(%s, run_after_ms)", "= coalesce(%s, run_after_ms + 1)", KEPT_PLAN),
    here("heartbeat", "LEAST(coalesce(%s, run_after_ms) + claim_timeout_ms, %s)", "0 * %s * %s", KEPT_UNTIL),
    here("heartbeat", "LEAST(coalesce(", "GREATEST(coalesce(", KEPT_UP_TO, **BOUNDED),
    here("heartbeat", "GREATEST(%s + claim_timeout_ms", "GREATEST(0 * %s", KEPT_UP_TO, **SHORT),
    here(
        "succeeded_before",
        "state = 2",
        "state = 3",
        test_ended_jobs.test_each_ended_state_has_its_own_time_to_live,
        state=JobState.SUCCEEDED,
    ),
    here(
        "failed_before",
        "claim_expires_at_ms IS NULL",
        "(claim_expires_at_ms IS NULL OR 1 = 1)",
        test_dead_letters.test_jobs_that_wait_to_be_copied_do_not_hide_those_to_prune,
    ),
    here(
        "oldest_ended",
        "AND state = 2",
        "AND state = 3",
        test_ended_jobs.test_a_job_is_pruned_only_after_its_time_to_live,
        state=JobState.SUCCEEDED,
    ),
    *[
        here(statement, "GREATEST((SELECT last_value FROM pinlater_ids), %s)", without, test)
        for statement, *tests in (
            ("allocate_ids", BOTH_IDS, BOTH_IDS),
            (
                "store_jobs",
                test_ids.test_ids_never_fall_behind_the_time_in_microseconds,
                test_ids.test_ids_go_on_ascending_when_the_clock_goes_back,
            ),
        )
        for without, test in zip(("(SELECT last_value FROM pinlater_ids) + 0 * %s", "%s"), tests, strict=True)
    ],
    here(
        "store_jobs",
        "job.place - 1",
        "count(*) OVER () - job.place",
        test_ids.test_each_descriptor_names_its_own_job,
    ),
    here("put_firings", "GREATEST(pinlater_firings.mark, excluded.mark)", "excluded.mark", NEVER_FALLS),
    *[
        here(
            statement,
            " AND job_id = ANY(%s)",
            " AND 5 <> ALL(%s)",
            test_key_corners.test_an_earlier_job_of_a_key_takes_nothing_of_a_later_one_with_it,
        )
        for statement in ("drop_keys", "drop_keys_over")
    ],
]

LOCK_OF_CLAIMS = Mutation(
    "postgres", "postgres_session", '"FOR UPDATE SKIP LOCKED"', '""', ONE_CLAIMER, is_module=True, tries=50
)
POSTGRES = [*STATEMENTS, LOCK_OF_CLAIMS]
