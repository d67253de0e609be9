"""The guards about successors of running jobs, and about the bound of what replacements postpone, in every store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.conformance import test_successors as successors
from tests.conformance.mutation import Mutation
from tests.conformance.mutations_dynamodb import here
from tests.conformance.mutations_redis_cluster import lua
from tests.conformance.mutations_sql_ways import step

WAITS = successors.test_a_newer_job_waits_for_the_running_one
THIRD = successors.test_a_third_one_takes_the_place_of_the_successor
NOT_AGAIN = successors.test_a_running_job_with_a_successor_is_not_tried_again
FOR_GOOD = successors.test_a_failure_for_good_is_one_beside_a_successor_too
GOES = successors.test_a_successor_that_goes_leaves_the_running_job_as_it_was
STOPS = successors.test_a_newer_job_has_the_running_one_stopped
STOPS_LATER = successors.test_a_third_one_may_have_the_running_job_stopped
OPERATOR = successors.test_an_operator_stops_a_running_job_that_has_a_successor
NOT_RUNNING = successors.test_without_a_running_job_the_rules_change_nothing
IN_CHAIN = successors.test_a_successor_keeps_its_place_among_the_jobs_of_its_serialize_key
CLOSED = successors.test_a_shard_that_takes_no_jobs_takes_no_successor
SEND_ID = successors.test_a_send_id_of_a_replacement_names_the_successor
LISTED = successors.test_an_expired_claim_says_whether_its_job_was_asked_to_stop
BOUND = successors.test_replacements_postpone_a_job_up_to_a_bound
PULLS = successors.test_the_bound_pulls_nothing_in


def offer(old: str, new: str, test: Callable[..., Any], **given: Any) -> Mutation:
    return lua("enqueue_extended", old, new, test, **given)


REDIS = [
    offer("local newest = entry_of_successor(entry) or entry", "local newest = entry", THIRD),
    offer("if rules_of[i].takes_no_jobs then return", "if false then return", CLOSED),
    offer(
        "if not rules_of[i] or rules_of[i].running == KEEP_RUNNING then",
        "if not rules_of[i] then",
        successors.test_a_bound_alone_keeps_what_runs,
    ),
    offer("if rules_of[i] and rules_of[i].within > 0 then", "if false then", BOUND),
    offer("math.max(created + rules_of[i].within, tonumber(due))", "created + rules_of[i].within", PULLS),
    offer("nearer[#nearer + 1] = {i, string.format('%.0f', run_after)}", "", BOUND),
    offer("if followed then into, version = waiting,", "if followed then into, version = into,", WAITS),
    offer(" and code ~= DIFFERENT and code ~= RUNS_HERE then", " then", STOPS_LATER),
    offer("call('ZSCORE', base .. ':s:1:' .. priority, id) and stopping_record(", "stopping_record(", NOT_RUNNING),
    offer(
        "code, named = decide(i, entry, run_after, on_duplicate)",
        "code, named = decide(i, entry, run_after, on_duplicate), entry",
        SEND_ID,
    ),
    offer("if is_known and (e.by ~= '' or by == '') then", "if is_known and by == '' then", STOPS_LATER),
    lua("ack", "if e.by ~= '' then return true end", "", STOPS),
    lua(
        "ack",
        "return entry and sub(entry, 1, 8) == id and successor_of(entry) ~= nil",
        "return entry",
        GOES,
        way="cancel",
    ),
    lua("ack", "local entry = goes_on and e.dedupe", "local entry = e.dedupe", FOR_GOOD, permanent=True),
    lua("ack", "ends_cancelled(base, id, extra, remaining > 0)", "ends_cancelled(base, id, extra, false)", NOT_AGAIN),
    lua("requeue", "ends_cancelled(base, id, extra, true)", "ends_cancelled(base, id, extra, false)", NOT_AGAIN),
    lua(
        "expire_claims",
        "ends_cancelled(base, id, extra, expired.retries)",
        "ends_cancelled(base, id, extra, false)",
        NOT_AGAIN,
    ),
    lua(
        "expire_claims",
        "ends_cancelled(base, id, extra, expired.retries)",
        "ends_cancelled(base, id, extra, true)",
        successors.test_a_claim_that_expires_for_the_last_time_fails_beside_a_successor,
    ),
    lua("heartbeat", " and e.by ~= '' and e.by or 1", " and e.by or 1", NOT_AGAIN),
    lua("cancel", "if successor == id then", "if false then", GOES, way="cancel"),
    lua("ack", "elseif successor and sub(entry, 1, 8) == id then", "elseif false then", WAITS),
    lua("ack", "if not serialize then free(", "if true then free(", IN_CHAIN),
    lua("expired_claims", " and extra_of(extras[n]).by ~= '' and 1 or 0", " and 1 or 0", LISTED),
]

SQL = [
    *step("keyed_jobs", "stands = self._successors.get(keys[2], entry)", "stands = entry", THIRD),
    *step("keyed_jobs", "elif offer.takes_no_jobs:", "elif False:", CLOSED),
    *step(
        "keyed_jobs",
        "elif job.replace_running is ReplaceRunning.KEEP:",
        "elif False:",
        successors.test_a_bound_alone_keeps_what_runs,
    ),
    *step("keyed_jobs", "if job.replace_within_ms is not None:", "if False:", BOUND),
    *step("keyed_jobs", "flags, state = flags | STOPPING, WAITING", "flags |= STOPPING", WAITS),
    *step("keyed_jobs", "flags, state = flags | STOPPING, WAITING", "state = WAITING", GOES, way="cancel"),
    *step("keyed_jobs", " and offered.outcome is not OfferOutcome.DIFFERENT\n", "\n", STOPS_LATER),
    *step("keyed_jobs", "(not by or stop_requests(self._session, [job_id]))", "not by", STOPS_LATER),
    *step("keyed_jobs", "self._successors.get(name, entry) if is_newer else entry", "entry", SEND_ID),
    Mutation(
        "mysql",
        "keyed_jobs",
        "            names = {name for name in names if not self._is_live(self._entries[name].job_id)}\n",
        "            names = set()\n",
        successors.test_many_callers_store_one_successor_of_each_key,
        tries=50,
        is_module=True,
    ),
    *step("successors", "or not goes_on or", "or", FOR_GOOD, permanent=True),
    *step(
        "successors",
        "return bool(successors(session, job.queue_id, [job.keys.dedupe_name]))",
        "return True",
        GOES,
        way="cancel",
    ),
    *step("successors", "if not own_flags & IN_CHAIN", "if True", IN_CHAIN),
    *step("successors", "if entry.job_id == own[name].job_id]", "if False]", GOES, way="cancel"),
    *step("job_ends", "    if paired:\n", "    if False:\n", WAITS),
    *step("queries", "if entry.job_id != job.job_id:", "if True:", GOES, way="cancel"),
    *step("attempts", "goes_on = outcome is AckOutcome.RETRIED", "goes_on = False", NOT_AGAIN),
    *step("attempts", "row[EXTENDED], goes_on=True)", "row[EXTENDED], goes_on=False)", NOT_AGAIN),
    *step("attempts", "goes_on=remaining > 0)", "goes_on=False)", NOT_AGAIN),
    *step(
        "attempts",
        "goes_on=remaining > 0)",
        "goes_on=True)",
        successors.test_a_claim_that_expires_for_the_last_time_fails_beside_a_successor,
    ),
    *step(
        "attempts",
        "(cancelled_by := known[each.id].cancelled_by)",
        "(cancelled_by := known[each.id].cancelled_by or '?')",
        NOT_AGAIN,
    ),
    *step("attempts", "stop_requests(session, stopping) if stopping else frozenset[int]()", "set(stopping)", LISTED),
    *step(
        "admin",
        "for job_id in stop_requests(session, stopping) if stopping else ():",
        "for job_id in stopping:",
        OPERATOR,
    ),
]

DYNAMODB = [
    here("key_items", "if entry is not None and is_next(entry, job):", "if False:", GOES, way="cancel"),
    here("key_items", "if not heir.serialize_key:", "if True:", IN_CHAIN),
    here("key_items", "(heir := await successor_of(step, entry)) is not None:", "(heir := None) is not None:", WAITS),
    here("enqueue", "stands = job if newer is None else newer", "stands = job", THIRD),
    here("enqueue", "elif offer.takes_no_jobs:", "elif False:", CLOSED),
    here("enqueue", "            job.state = WAITING\n", "", WAITS),
    here("enqueue", "if asks and job.state == IN_PROGRESS:", "if asks:", NOT_RUNNING),
    here("enqueue", " and offered.outcome is not OfferOutcome.DIFFERENT\n", "\n", STOPS_LATER),
    here("enqueue", "replaced_due_ms(wanted_ms, new.replace_within_ms, *times)", "wanted_ms", BOUND),
    here("enqueue", "if newer is not None and is_newer else entry", "if False else entry", SEND_ID),
    here("attempt_steps", " and not (goes_on and await _has_successor(step, job)):", ":", NOT_AGAIN),
    here("attempt_steps", "(goes_on and await _has_successor(step, job))", "goes_on", GOES, way="cancel"),
    here(
        "attempt_steps",
        "(goes_on and await _has_successor(step, job))",
        "await _has_successor(step, job)",
        FOR_GOOD,
        permanent=True,
    ),
    here("attempt_steps", "        if job.stop_by:\n", "        if job.stop_by is not None:\n", NOT_AGAIN),
    here("due_work", "bool(job.stop_by)", "job.stop_by is not None", LISTED),
]

SUCCESSORS = [*REDIS, *SQL, *DYNAMODB]
