"""The guards of groups, in the SQL statements and steps and in the Lua scripts."""

from __future__ import annotations

from tests.conformance import test_group_clearing as clearing
from tests.conformance import test_group_rules as rules
from tests.conformance import test_groups as groups
from tests.conformance.mutations_redis_cluster import lua
from tests.conformance.mutations_sql_ways import only, sql, step

_ON_FOUR = {"limit": 12, "most": 0}
_WALK = {"seed": 0}
AHEAD = rules.test_a_group_that_comes_back_keeps_the_turns_that_it_had_ahead
WEIGHTS = rules.test_groups_have_turns_by_their_weights
SPREAD = rules.test_turns_of_a_group_on_several_shards_cost_so_many_times_as_much
PAUSED = rules.test_no_job_of_a_paused_group_is_handed_out_and_others_go_on
ENDS = rules.test_a_pause_ends_by_itself
CREDIT = rules.test_a_group_has_no_credit_for_its_pause_and_keeps_turns_ahead
GONE = rules.test_what_leaves_the_line_of_a_paused_group_does_not_come_back_with_it
NAMED = rules.test_a_named_job_of_a_paused_group_is_not_handed_out
READY = rules.test_jobs_of_paused_groups_are_not_ready_for_a_claim
SUM = rules.test_a_count_adds_up_the_weights_of_groups_that_wait
DELETED = rules.test_rules_of_a_deleted_queue_do_not_count_for_the_next_one_of_its_name
OUT_OF_LINE = clearing.test_no_job_comes_into_line_meanwhile
COME = clearing.test_jobs_with_groups_that_come_meanwhile_have_turns_and_are_cleared_too
BACK = clearing.test_what_is_in_line_goes_back_before_it_is_done
COUNT = clearing.test_a_count_changes_nothing

GROUPS = [
    *sql("first_turns", "ORDER BY turn, grp", "ORDER BY grp", groups.test_calls_by_chance_keep_the_turns, **_WALK),
    *[
        mutation
        for store, statement, old in (
            ("sqlite", "first_in_line", "ORDER BY run_after_ms, job_id"),
            ("mysql", "ids_in_line", "ORDER BY run_after_ms, job_id SEPARATOR"),
            ("postgres", "first_in_lines", "ORDER BY run_after_ms, job_id"),
        )
        for mutation in only(
            *(store, statement, old, old.replace("run_after_ms, ", "")),
            groups.test_within_a_group_the_order_is_by_run_after_and_age,
        )
    ],
    *only("sqlite", "await_turns", "max(pinlater_turns.turn, excluded.turn)", "excluded.turn", AHEAD),
    *only("mysql", "await_turns", "GREATEST(turn, VALUES(turn))", "VALUES(turn)", AHEAD),
    *only(
        "postgres",
        "await_turns",
        "GREATEST(pinlater_turns.turn, excluded.turn)",
        "excluded.turn",
        groups.test_calls_by_chance_keep_the_turns,
        **_WALK,
    ),
    *only("postgres", "enter_lines", "GREATEST(pinlater_turns.turn, excluded.turn)", "excluded.turn", AHEAD),
    *step("group_lines", "group, time, 1) for", "group, 0.0, 1) for", groups.test_a_group_that_was_away_gets_no_credit),
    *step(
        "group_lines",
        'time = max(time, session.rows("last_past_turn", (*which, *which))[0][0] or 0.0)',
        "pass",
        rules.test_where_nobody_waits_all_begin_beside_each_other,
    ),
    *step(
        "group_lines",
        "heap = list(groups)\n        heapify",
        "heap = [each for each in groups if each[1] in lines]\n        heapify",
        groups.test_where_the_jobs_of_a_group_end_within_a_claim_all_others_take_its_place,
    ),
    *step(
        "group_lines",
        "        time = max(time, self._times.get(priority, 0.0))\n",
        "",
        groups.test_turns_that_went_back_are_no_credit_for_whoever_comes_then,
    ),
    *step(
        "group_lines",
        "line.turn + count * self._stride(priority, group)",
        "line.turn + self._stride(priority, group)",
        groups.test_calls_by_chance_keep_the_turns,
        **_WALK,
    ),
    *step(
        "group_lines",
        "self.enter_due([each for",
        "self.enter_due([0 for",
        groups.test_jobs_come_into_line_when_they_are_due,
    ),
    *sql("times_for_claim", "state = 0", "state = -1", groups.test_jobs_come_into_line_when_they_are_due),
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
    *step(
        "ready_jobs",
        "if turns is not None and turns.pass_over(over, MOST_PASSED_OVER)",
        "if False",
        groups.test_a_job_whose_time_is_over_takes_no_turn,
    ),
    *step("ready_jobs", "counts[priority] += count", "pass", groups.test_jobs_in_line_are_counted_and_shown_as_pending),
    lua(
        "enqueue_grouped",
        "math.max(time, tonumber(turn or 0))",
        "tonumber(turn or 0)",
        groups.test_a_group_that_was_away_gets_no_credit,
    ),
    lua("claim", "one.next + one.stride", "one.next", groups.test_calls_by_chance_keep_the_turns, **_WALK),
    lua(
        "claim",
        "math.max(turns[count], tonumber(call('HGET', base .. ':turn', priority) or 0))",
        "turns[count]",
        groups.test_turns_that_went_back_are_no_credit_for_whoever_comes_then,
    ),
    lua(
        "claim",
        "= true\n      lines.enter_due(priority, now)",
        "= true",
        groups.test_jobs_come_into_line_when_they_are_due,
    ),
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
        "':turns:', ':ahead:', ':held:'}",
        "':turns:'}",
        groups.test_a_queue_made_anew_has_nothing_of_the_groups_before,
    ),
    # -- rules --
    *step("group_lines", "1) / self._rules.of(group).weight", "1)", WEIGHTS),
    *step("group_lines", "TURN * self._spread.get((priority, group), 1)", "TURN", SPREAD, **_ON_FOUR),
    *step(
        "group_lines",
        'give_turn_back", (TURN / rules.of(group).weight,',
        'give_turn_back", (TURN,',
        rules.test_a_requeue_gives_back_what_the_turn_cost,
    ),
    *step("group_lines", "in until.items() if until_ms > now_ms", "in until.items() if False", PAUSED),
    *step("group_lines", "            if any_held:\n", "            if False:\n", ENDS),
    *step(
        "group_lines", "max(turn, time), 1)\n        for group, turn, _", "turn, 1)\n        for group, turn, _", CREDIT
    ),
    *step("group_lines", "if rules.of(bytes(group)).paused_until_ms <= now_ms", "if False", PAUSED),
    *step("ready_jobs", "len(batch) >= room or job.id in paused", "len(batch) >= room", NAMED),
    *step("ready_jobs", "            if priority in some_held:\n", "            if False:\n", READY),
    *step("ready_jobs", "    if has_rules:\n", "    if False:\n", SUM),
    *step("coordination", "take_rules(session, entry.name.removeprefix(GROUP_RULES_PREFIX), now_ms)", "pass", PAUSED),
    lua("claim", "stride = shards_of(priority, group) / weight", "stride = shards_of(priority, group)", WEIGHTS),
    lua("claim", "stride = shards_of(priority, group) / weight", "stride = 1 / weight", SPREAD, **_ON_FOUR),
    lua("claim", "if until_ms > now then", "if false then", PAUSED),
    lua("claim", "      L.free(priority, over)\n", "", ENDS),
    lua("put_config", "if L.has_jobs(priority, group) then waiting", "if true then waiting", GONE),
    lua("requeue", "exact(-1 / weight)", "-1", rules.test_a_requeue_gives_back_what_the_turn_cost),
    lua(
        "count_ready",
        " - lines.held_jobs(ARGV[i], ARGV[2])",
        "",
        READY,
    ),
    lua("count_ready", "texts and rule(name, texts[i]) or 1", "1", SUM),
    lua("claim_listed", "(free <= 0 or has_groups and lines_of(base).is_paused(extra, now))", "free <= 0", NAMED),
    lua("put_config", "if not above(version, deleted) then return end", "", DELETED),
    lua("put_config", "if #freed > 0 then", "if false then", PAUSED),
    lua("put_config", "base .. ':turn', base .. ':rules',", "base .. ':turn',", DELETED),
    *only("sqlite", "queue_with_groups", "rules.version >", "'9' >", DELETED),
    *only("postgres", "queue_with_groups", "rules.version >", "'9' >", DELETED),
    *only("mysql", "queue_id_if_eligible", "rules.version >", "'9' >", DELETED),
    # -- taken off --
    *step("cleared_groups", "    if dry_run:\n", "    if False:\n", COUNT),
    *step("cleared_groups", "its_queue_id == queue_id", "True", clearing.test_other_queues_keep_their_groups),
    *step("cleared_groups", 'and not session.rows("lines_of_queue", (queue_id, 1))', "", BACK),
    *step("cleared_groups", "if state == IN_LINE]", "if False]", BACK),
    *step("group_lines", "for priority in () if self._is_clearing else", "for priority in", OUT_OF_LINE),
    *step("group_lines", "(self._looks or self._is_clearing) and", "self._looks and", OUT_OF_LINE),
    *step("group_lines", "if times.pop(CLEARING, None) is not None:", "if times.pop(CLEARING, None) == -1:", COME),
    lua("clear_groups", "if ARGV[6] == '1' then", "if false then", COUNT),
    lua("clear_groups", "and round == marked_at and", "and", COME),
    lua("clear_groups", "and is_empty then", "then", BACK),
    lua("clear_groups", "if not was_clearing then call('HSET', root", "if false then call('HSET', root", OUT_OF_LINE),
    lua("claim", "if lines and not is_clearing and", "if lines and", OUT_OF_LINE),
    lua("claim", "if is_clearing and in_line and #ids == 0 then", "if false then", OUT_OF_LINE),
    lua(
        "enqueue_grouped",
        "if sub(entry, -2, -2) == 'c' then",
        "if false then",
        COME,
    ),
]
