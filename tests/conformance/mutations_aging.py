"""The guards of aging, in the SQL statements and steps, in the Lua scripts and on DynamoDB."""

from __future__ import annotations

from tests.conformance import test_group_aging as groups
from tests.conformance import test_priority_aging as aging
from tests.conformance.mutations_dynamodb import here
from tests.conformance.mutations_redis_cluster import lua
from tests.conformance.mutations_sql_ways import sql, step

_LEVELS = "pinlater.backends.aged_levels"

AGING = [
    *sql(
        "oldest_ready",
        "AND NOT EXISTS (SELECT 1 FROM pinlater_expiries WHERE job_id = id AND expires_at_ms <= $)",
        "AND $ > 0",
        aging.test_a_job_whose_time_is_over_is_passed_over,
    ),
    *step(_LEVELS, "max(1, priority - max", "(priority - max", aging.test_no_job_goes_above_the_first_priority),
    *step(
        _LEVELS,
        "max(0, priority - self.number)",
        "(priority - self.number)",
        aging.test_ready_jobs_are_counted_by_level,
    ),
    *step(
        _LEVELS,
        "        if level > last.number:\n            return\n",
        "",
        groups.test_a_priority_is_as_high_as_the_oldest_of_its_jobs,
    ),
    *step(_LEVELS, "oldest[at].id in gone", "False", groups.test_a_priority_is_as_high_as_the_oldest_of_its_jobs),
    *step(
        _LEVELS,
        "(oldest[at] if at < len(oldest) else own)",
        "own",
        groups.test_a_priority_is_as_high_as_the_oldest_of_its_jobs,
    ),
    *step(
        "aged_jobs",
        "(StoredState.PENDING, StoredState.IN_LINE) if has_groups",
        "(StoredState.IN_LINE,) if has_groups",
        groups.test_ready_jobs_outside_and_in_line_are_counted,
    ),
    lua(
        "claim",
        "level <= L.last and is_first",
        "is_first",
        groups.test_a_priority_is_as_high_as_the_oldest_of_its_jobs,
    ),
    lua(
        "claim",
        "math.max(1, source.priority - ",
        "math.max(-99, source.priority - ",
        aging.test_no_job_goes_above_the_first_priority,
    ),
    lua("claim", "job and (oldest or job)", "job", groups.test_a_priority_is_as_high_as_the_oldest_of_its_jobs),
    lua(
        "claim",
        "if not (is_clearing or entered[priority]) then lines.enter_due(priority, now) end",
        "",
        groups.test_a_look_at_levels_counts_jobs_that_are_not_in_line_yet,
    ),
    lua(
        "claim",
        "if one.at ~= other.at then return one.at < other.at end",
        "",
        aging.test_at_one_level_the_order_is_by_run_after_and_age,
    ),
    lua(
        "count_levels",
        "if not queue_entry then return false end",
        "queue_entry = queue_entry or ''",
        aging.test_a_queue_that_is_not_there_is_refused,
    ),
    lua("count_levels", "sweep(base, ARGV[2], SWEPT)", "", aging.test_a_job_whose_time_is_over_is_passed_over),
    lua(
        "count_levels",
        "math.max(0, priority - level)",
        "(priority - level)",
        aging.test_ready_jobs_are_counted_by_level,
    ),
    lua(
        "count_levels",
        "return lines and count + redis.call",
        "return lines and redis.call",
        groups.test_ready_jobs_outside_and_in_line_are_counted,
    ),
    here(
        "claims",
        "taken, self._now_ms)",
        "taken, 0)",
        aging.test_a_job_comes_up_by_one_priority_for_each_time_that_it_waits,
    ),
]
