"""The guards of groups, in the SQL statements and steps and in the Lua scripts."""

from __future__ import annotations

from tests.conformance import test_groups as groups
from tests.conformance.mutations_redis_cluster import lua
from tests.conformance.mutations_sql_ways import sql, step

_WALK = {"seed": 0}

GROUPS = [
    *sql("first_turns", "ORDER BY turn, grp", "ORDER BY grp", groups.test_calls_by_chance_keep_the_turns, **_WALK),
    *sql(
        "first_in_line",
        "ORDER BY run_after_ms, job_id",
        "ORDER BY job_id",
        groups.test_within_a_group_the_order_is_by_run_after_and_age,
    ),
    *sql("turns", "queue_id = $", "queue_id < $", groups.test_calls_by_chance_keep_the_turns, **_WALK),
    *step("group_lines", "max(turn, time)", "turn", groups.test_a_group_that_was_away_gets_no_credit),
    *step(
        "group_lines",
        'time = max(time, session.rows("last_past_turn", which)[0][0] or 0.0)',
        "pass",
        groups.test_calls_by_chance_keep_the_turns,
        **_WALK,
    ),
    *step(
        "group_lines",
        "line.turn + count * TURN",
        "line.turn + TURN",
        groups.test_calls_by_chance_keep_the_turns,
        **_WALK,
    ),
    *step(
        "group_lines", "_enter_due([each for", "_enter_due([0 for", groups.test_jobs_come_into_line_when_they_are_due
    ),
    *step(
        "attempts",
        "    leave(session, sorted(each.job_id for each in ends if each.is_in_line))\n",
        "",
        groups.test_what_leaves_its_line_is_not_charged,
    ),
    *step(
        "attempts",
        "    leave(session, sorted(row[0] for row in rows if row[5] == IN_LINE))\n",
        "",
        groups.test_a_job_whose_time_is_over_leaves_its_line,
    ),
    *step(
        "ready_jobs",
        "    leave(session, [row[0] for row in batch if states[row[0]] == IN_LINE])\n",
        "",
        groups.test_a_claim_of_named_jobs_takes_them_out_of_line,
    ),
    *step(
        "admin",
        "    put_back(session, sorted(moved))\n",
        "",
        groups.test_a_reschedule_takes_a_job_out_of_line_and_back,
    ),
    *step(
        "keyed_jobs",
        "        if state == IN_LINE:\n",
        "        if False:\n",
        groups.test_a_replaced_job_keeps_its_group,
    ),
    *step(
        "group_lines",
        'sorted(groups):\n        session.run("give',
        '[]:\n        session.run("give',
        groups.test_a_requeue_gives_the_turn_back,
    ),
    *step("ready_jobs", "counts[priority] += count", "pass", groups.test_jobs_in_line_are_counted_and_shown_as_pending),
    lua(
        "enqueue_extended",
        "math.max(time, tonumber(turn or 0))",
        "tonumber(turn or 0)",
        groups.test_a_group_that_was_away_gets_no_credit,
    ),
    lua("claim", "one.next + 1", "one.next", groups.test_calls_by_chance_keep_the_turns, **_WALK),
    lua("claim", "lines.enter_due(priority, now)", "", groups.test_jobs_come_into_line_when_they_are_due),
    lua(
        "cancel",
        "code == '3' and call",
        "code == '4' and call",
        groups.test_what_leaves_its_line_is_not_charged,
    ),
    lua(
        "claim_listed",
        "lines_of(base).leave(priority, {id}) else",
        "call('ZREM', base .. ':s:8:' .. priority, id) else",
        groups.test_a_claim_of_named_jobs_takes_them_out_of_line,
    ),
    lua("reschedule", "    state = 0\n", "", groups.test_a_reschedule_takes_a_job_out_of_line_and_back),
    lua("requeue", "lines_of(base).give_back(priority, extra)", "", groups.test_a_requeue_gives_the_turn_back),
    lua(
        "count_ready",
        "if at[i] or behind[i] or in_line then",
        "if at[i] or behind[i] then",
        groups.test_a_job_whose_time_is_over_leaves_its_line,
    ),
    lua(
        "count_ready",
        " + redis.call('ZCARD', KEYS[2] .. ':s:8:' .. ARGV[i])",
        "",
        groups.test_jobs_in_line_are_counted_and_shown_as_pending,
    ),
    lua(
        "put_config",
        "':turns:', ':ahead:'}",
        "':turns:'}",
        groups.test_a_queue_made_anew_has_nothing_of_the_groups_before,
    ),
]
