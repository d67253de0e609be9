"""Planted faults: guards of the product that are taken out, one at a time, and the proof that must fail without each.

They are those of proofs that no other list of planted faults is for. A fault above the stores that the simulation knows
(tests/simulation/planted/guards.py) has its name and its change from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tests.simulation.planted.guards import GUARDS, Guard


@dataclass(frozen=True)
class Fault:
    """`proof`: the name of one; `tests`: which of its tests, as arguments of pytest; `finds`: a pattern of what one of
    them says then; `lengths`: variables that make it short; `needs`: stores that it starts, beside SQLite.
    """

    proof: str
    guard: Guard
    tests: Sequence[str]
    finds: str
    lengths: Mapping[str, str] = field(default_factory=dict)
    needs: Sequence[str] = ()

    @property
    def path(self) -> str:
        """Of the file that has the guard, in a checkout."""
        place = self.guard.place
        return place if "/" in place else f"{place.replace('.', '/')}.py"


_KNOWN = {guard.name: guard for guard in GUARDS}
_FOUR_STORES = ("redis", "mysql")


def _guard(what: str, place: str, old: str, new: str) -> Guard:
    """`place`: a module, or the path of another file."""
    return Guard("", place, old, new, what)


KEYS = "tests/cluster/test_proof_keys.py"
PAYROLL = "tests/flows/test_payroll_kills.py::test_a_payroll_survives_an_embedded_server_that_is_killed"
BODY_KILLS = "tests/bodies/test_body_kills.py"
GROUP_KILLS = "tests/cluster/test_proof_groups.py"
LIMITS = "tests/cluster/test_proof_limits.py"
DEPLOYS = "tests/cluster/test_deploys.py::test_queues_settings_and_schedules_of_many_hosts"
TRIAL = "tests/kits/test_trial.py"

FAULTS = (
    Fault(
        "key_kills",
        _KNOWN["shards.keys.homes_record: a key has its home by chance"],
        [f"{KEYS}::test_64_callers_bring_the_same_keys_at_once_and_a_server_is_killed"],
        r"assert (all\(each == answers|len\(set\(answers)",
        {"PINLATER_PROOF_KEYS": "40"},
        _FOUR_STORES,
    ),
    Fault(
        "key_kills",
        _guard(
            "in Redis a job does not wait for those before it in its chain",
            "pinlater/backends/redis/lua/enqueue_extended.lua",
            "    if head then\n      into = waiting\n",
            "    if head then\n",
        ),
        [f"{KEYS}::test_jobs_of_a_key_are_done_one_at_a_time_and_in_order_while_workers_fail_lapse_and_are_killed"],
        r"began (beside|behind|before the end of)",
        {"PINLATER_PROOF_KEYS": "20"},
        _FOUR_STORES,
    ),
    Fault(
        "flow_kills",
        _guard(
            "items that come twice with the same key are two items",
            "pinlater.flows.rows",
            "groupby(items, lambda item: bool(item.dedupe_key)):",
            "groupby([NewItem(item.payload) for item in items], lambda item: bool(item.dedupe_key)):",
        ),
        [PAYROLL],
        r"\* 3",
        {"PINLATER_PAYROLL_USERS": "200"},
    ),
    Fault(
        "flow_kills",
        _KNOWN["flows.end_records: an item that has ended ends again"],
        [PAYROLL],
        r"have succeeded than there are",
        {"PINLATER_PAYROLL_USERS": "600"},
    ),
    Fault(
        "body_kills",
        _KNOWN["bodies.tiered_shard: a body is deleted as soon as its job is stored"],
        [f"{BODY_KILLS}::test_killed_at_random_moments_under_load"],
        r"jobs are left|JobState.FAILED",
        {"PINLATER_BODY_KILLS": "4"},
    ),
    Fault(
        "body_kills",
        _guard(
            "the sweep leaves a body whose job was never stored",
            "pinlater.bodies.sweep",
            "return place == len(held) or held[place] != name.id",
            "return False",
        ),
        [f"{BODY_KILLS}::test_killed_between_the_object_and_its_job_and_between_the_job_and_its_object"],
        r"BodyTier\(",
        {"PINLATER_BODY_KILLS": "4"},
    ),
    Fault(
        "worker_kills",
        _guard(
            "a job whose process died counts as a success",
            "workers/pinlater_workers/pools/process_pool.py",
            "self._end(process, outcome_on_error(running, ProcessDied(reason)))",
            "self._end(process, Outcome(Action.SUCCEED))",
        ),
        ["tests/workers/test_proof_kills.py::test_jobs_end_right_whatever_is_killed_meanwhile[sqlite]"],
        r"succeeded without an end",
        {"PINLATER_PROOF_JOBS": "600"},
    ),
    Fault(
        "worker_kills",
        _guard(
            "the claims of a connection that broke end at once",
            "pinlater.service.connection_claims",
            "self._grace_ms = context.settings.release_grace_ms",
            "self._grace_ms = 0",
        ),
        ["tests/workers/test_proof_claims.py::test_a_worker_whose_connections_are_all_reset_keeps_its_claims"],
        r"\[1\] \* len\(jobs\)",
    ),
    Fault(
        "kits",
        _guard(
            "in Go, a job whose claim was lost is reported as if it were its worker's",
            "workers/go/attempt.go",
            "cause == ErrClaimLost || cause == ErrTimeLimit:",
            "cause == ErrTimeLimit:",
        ),
        [TRIAL, "-k", "go-claim-taken-away"],
        r'== "lost"',
        needs=["languages"],
    ),
    Fault(
        "kits",
        _guard(
            "in Python, a secret stands in what an error says of it",
            "workers/pinlater_workers/execution/decision.py",
            "secrets = secret_values(job.body)",
            'secrets = secret_values(b"")',
        ),
        [TRIAL, "-k", "python-secret-is-masked"],
        r'"hunter22" not in',
    ),
    Fault(
        "group_kills",
        _KNOWN["queues.group_limits: jobs of a group without permits are handed out"],
        [GROUP_KILLS],
        r"most\[group\] > MOST\[group\]",
        {"PINLATER_PROOF_GROUP_KILLS": "3"},
        _FOUR_STORES,
    ),
    Fault(
        "group_kills",
        _KNOWN["queues.group_limits: acks give no permits back"],
        [GROUP_KILLS],
        r"all_done.* did not come to pass",
        {"PINLATER_PROOF_GROUP_KILLS": "3"},
        _FOUR_STORES,
    ),
    Fault(
        "limits",
        _guard(
            "a bucket of tokens fills twice as fast",
            "pinlater.queues.cluster_limits",
            "per_second * self._pace(queue), capacity",
            "2 * per_second * self._pace(queue), capacity",
        ),
        [f"{LIMITS}::test_a_rate_is_kept_by_the_whole_cluster_with_workers_on_one_server_only"],
        r"<= exact",
        needs=_FOUR_STORES,
    ),
    Fault(
        "limits",
        _KNOWN["queues.rebalance: each shard has the whole maximum in progress"],
        [f"{LIMITS}::test_at_no_instant_is_more_in_progress_than_allowed_and_all_drains[3]"],
        r"holding\.most <= most",
        needs=_FOUR_STORES,
    ),
    Fault(
        "limits",
        _guard(
            "shards that are out are asked like all others",
            "pinlater.shards.shard_set",
            "self._healthy = [handle for handle in self.all if handle.is_healthy]",
            "self._healthy = list(self.all)",
        ),
        ["tests/cluster/test_proof_sick_shards.py", "-k", "test_callers_see_errors and silent"],
        r"errors\] == \[\]|slow == \[\]",
        needs=_FOUR_STORES,
    ),
    Fault(
        "deploys",
        _guard(
            "a change that another one has overwritten meanwhile is not made again",
            "pinlater.queues.directory",
            "if self.entries.latest[name].version == version:",
            "if True:",
        ),
        [DEPLOYS],
        r"of_hosts",
        needs=["redis"],
    ),
    Fault(
        "deploys",
        _guard(
            "a roll closes connections, and hands none over",
            "pinlater.server.connection",
            "                self._hand_over(hand_over)\n",
            "                self._transport.close()\n",
        ),
        ["tests/server/test_processes.py::test_a_roll_under_load_fails_no_call[embedded]"],
        r"load\.failures == \[\]|, self\.failures",
    ),
    Fault(
        "deploys",
        _guard(
            "a server that ends closes connections whose calls are not answered yet",
            "pinlater.server.connection",
            "            and not self._calls\n",
            "",
        ),
        ["tests/server/test_draining.py::test_what_was_read_is_answered_and_later_calls_are_refused"],
        r"busy\.reply\(\)",
    ),
    Fault(
        "version_before",
        _guard(
            "the mark of a later version in SQL is overlooked",
            "pinlater.backends.sql.coordination",
            "if schema_version % MARK_STEP > LAST_VERSION:",
            "if False:",
        ),
        ["tests/stores/test_marks.py::test_the_next_mark_is_refused_with_an_id_and_without[sqlite]"],
        r"serves a store that it must not open",
    ),
    Fault(
        "version_before",
        _guard(
            "tables of the version before are taken for whole",
            "pinlater.backends.sql.coordination",
            '    return tables.issuperset(tables_of(session.statements["schema"])) and not any('
            'session.rows("lacks_columns")[0])\n',
            "    return bool(tables)\n",
        ),
        ["tests/stores/test_version_before.py::test_a_server_serves_the_store[sqlite]"],
        r"queue 'mail' does not exist",
    ),
    Fault(
        "hostile",
        _guard(
            "a field may come twice",
            "pinlater.wire.validator",
            "            if node.ttype != ttype or seen & field.bit:\n"
            "                raise wrong_field(layout, field, ttype)\n"
            "            seen |= field.bit\n"
            "            if ttype == STRING:\n",
            "            if node.ttype != ttype:\n"
            "                raise wrong_field(layout, field, ttype)\n"
            "            seen |= field.bit\n"
            "            if ttype == STRING:\n",
        ),
        ["tests/server/test_frames.py::test_a_malformed_call_is_answered_and_the_connection_lives_on"],
        r"DID NOT RAISE",
    ),
    Fault(
        "hostile",
        _guard(
            "a message has as many fields and elements as fit",
            "pinlater.wire.validator",
            "        if self._steps < 0:\n",
            "        if False:\n",
        ),
        ["tests/server/test_hostile.py::test_a_hostile_message_costs_little_and_others_are_served[binary]"],
        r"len\(tries\) < 3|DID NOT RAISE",
    ),
    Fault(
        "hostile",
        _guard(
            "a time may be later than any calendar goes",
            "pinlater.job_limits",
            "    if not 0 <= value_ms <= MAX_TIME_MS:\n",
            "    if False:\n",
        ),
        ["tests/extremes/test_faces.py::test_thrift_shows_them[sqlite]"],
        r"scanned >= set\(sent\.descriptors\)",
    ),
    Fault(
        "access",
        _guard(
            "a right on one queue is one on all queues",
            "pinlater.access.gate",
            "if not caller.may(actions, queue, shows_bodies):",
            "if not any(set(actions) & set(grant.actions) for grant in caller.grants):",
        ),
        ["tests/access/test_calls.py"],
        r"-elsewhere may not",
    ),
    Fault(
        "access",
        _guard(
            "everybody may retry failed jobs",
            "pinlater.wire.methods",
            'RETRY_FAILED = Method("retryFailedJobs", Api.retry_failed, Idempotency.ONCE, _OPERATE,',
            'RETRY_FAILED = Method("retryFailedJobs", Api.retry_failed, Idempotency.ONCE, (),',
        ),
        ["tests/access/test_not_yours.py", "-k", "test_what_is_there_and_what_is_not_have_one_answer and b-read"],
        r"retryFailedJobs",
    ),
)
