"""What is promised, and the commands that try to break it: of these docs/proof.md and the run before a release."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tests.parts import SOAKS
from tests.pythons import ROOT

SINCE = "2026-11-30"
"""What was found before that day was mended and not written down here."""


@dataclass(frozen=True, kw_only=True)
class Proof:
    """One command that tries to break a promise.

    It is `tests` (paths, or names of tests) with the variables of SOAKS that make them longer, or a `module` with its
    arguments, which records by itself what came of it (`--record`). `tries`: what it does. `planted`: how it is known
    that it would find something, "" where the faults of planted.py show that. `found`: what it has found since SINCE,
    each a sentence.
    `needs`: a folder without which it cannot run.
    """

    name: str
    tries: str
    planted: str = ""
    tests: Sequence[str] = ()
    variables: Sequence[str] = ()
    module: Sequence[str] = ()
    shown: str = ""
    found: Sequence[str] = ()
    needs: str = ""

    @property
    def lacks(self) -> str:
        """What has to be there first, as a sentence; "" where it is."""
        is_there = not self.needs or (ROOT / self.needs).is_dir()
        return "" if is_there else f"{self.name} needs {self.needs} (docs/performance.md says what that is)"

    @property
    def command(self) -> str:
        """As a reader says it."""
        return self.shown or f"./scripts/test --release {shlex.join(self.tests)}"

    @property
    def longer(self) -> dict[str, str]:
        """The variables with which it goes on as long as before a release."""
        return {name: SOAKS[name] for name in self.variables}

    @property
    def is_longer(self) -> bool:
        """The run of all tests before a release does not have it, or not for as long."""
        return bool(self.variables or self.module)

    def arguments(self) -> list[str]:
        """Of a process in the checkout, with the Python of this one."""
        if self.module:
            return [sys.executable, "-m", *self.module]
        return [sys.executable, "-m", "pytest", "-q", "--release", *self.tests]


@dataclass(frozen=True, kw_only=True)
class Promise:
    """`heading` is that of its part of the page. `open`: what nobody has tried yet."""

    text: str
    heading: str
    proofs: Sequence[Proof]
    open: Sequence[str] = ()

    @property
    def anchor(self) -> str:
        """Of the heading, in a link."""
        return self.heading.lower().replace(",", "").replace(" ", "-")


def _power_cut(name: str, test: str, what: str, *found: str) -> Proof:
    """Of one store, or of one kind of file that a server keeps: 500 cuts of each take long, and are run one by one."""
    return Proof(
        name=f"power_cuts_{name}",
        tests=[f"tests/powercuts/{test}"],
        variables=["PINLATER_POWER_CUTS"],
        tries=f"Cuts the power under {what}, on a disk that drops what was not synced.",
        planted="tests/powercuts/test_planted_cuts.py: eight faults, as a store that syncs nothing, each found within "
        "six cuts",
        found=found,
    )


_ON_A_STORE = "test_store_cuts.py::test_what_was_answered_survives_on_a_store"
_IN_FILES = "test_file_cuts.py::test_what_was_answered_survives_in"
POWER_CUTS = (
    _power_cut("sqlite", f"{_IN_FILES}_sqlite_and_in_a_tier[sqlite]", "servers with their jobs in SQLite"),
    _power_cut("tier", f"{_IN_FILES}_sqlite_and_in_a_tier[tier]", "a tier of bodies in a folder"),
    _power_cut("overflow", f"{_IN_FILES}_the_overflow_file", "overflow files whose store is away"),
    _power_cut("flows", f"{_IN_FILES}_the_database_of_flows", "the database of flows"),
    _power_cut(
        "redis",
        f"{_ON_A_STORE}[redis-always]",
        "Redis with `appendfsync always`, and servers",
        "Redis with `aof-load-truncated yes`, its default, carries out half a transaction at a later start: answered "
        "jobs were lost or ran again. That is Redis's own; conf/redis.conf says no, and "
        "[stores.md](stores.md#redis-after-a-power-cut) has the repair.",
    ),
    _power_cut(
        "redis_everysec",
        f"{_ON_A_STORE}[redis-everysec]",
        "Redis with `appendfsync everysec`, and servers: no more is gone than [stores.md](stores.md) says",
    ),
    _power_cut(
        "mariadb",
        f"{_ON_A_STORE}[mysql]",
        "MariaDB and servers",
        "MariaDB does not start where the file of a table that was just being made ends early, which ext4 allows where "
        "the room is in pieces: [stores.md](stores.md#mariadb-after-a-power-cut) has the repair.",
        "Once in 1,200 cuts MariaDB called one table corrupt, and did not again in the 1,100 after it. Not understood: "
        "[stores.md](stores.md#mariadb-after-a-power-cut) has what to do.",
    ),
    _power_cut("postgres", f"{_ON_A_STORE}[postgres]", "PostgreSQL and servers"),
)


PROMISES = (
    Promise(
        text="A job that was accepted is not lost, does not run early, and does not get stuck",
        heading="Nothing lost, early or stuck",
        proofs=(
            Proof(
                name="kills",
                tests=["tests/faults/test_kills.py"],
                variables=["PINLATER_KILL_ROUNDS", "PINLATER_KILL_CALLS"],
                tries="Kills servers and each kind of store under load, and starts them again. A history of all calls "
                "is held to the semantics.",
                planted="tests/unit/test_history_checker.py takes a line out of true histories, or changes one",
            ),
            Proof(
                name="failovers",
                tests=["tests/faults/test_sentinels.py", "tests/faults/test_redis_cluster.py"],
                variables=["PINLATER_FAILOVERS"],
                tries="Kills, freezes and cuts off primaries of Redis with sentinels and of a Redis Cluster.",
                planted="the same checker",
            ),
            *POWER_CUTS,
            Proof(
                name="simulation",
                module=["tests.simulation", "--hours", "10", "--record"],
                shown="./scripts/bench simulation --hours 10 --record",
                tries="Draws plans of faults (kills, freezes, clocks that jump, packets late or twice, stores that "
                "fall back) for clusters in virtual time, and holds all answers to the semantics.",
                planted="[some 1,000 guards](simulation-faults.md) of the product are taken out, one by one",
                found=(
                    "A group with a limit stayed full for four minutes after a shard hung. Mended.",
                    "A pause of groups that ended by itself went on hiding the limits of its pattern. Mended.",
                    "The checker of histories held two acks of a job against it, where a store had lost the first one "
                    "before the call that brought it was answered. Mended.",
                ),
            ),
            Proof(
                name="soak",
                module=["tests.soak", "--minutes", "20", "--record"],
                shown=".venv/bin/python -m tests.soak --minutes 20 --record",
                tries="Runs everything at once for hours, with a kill each minute and all servers rolled every ten: no "
                "job is lost, and neither memory nor descriptors, rows, files or latencies grow.",
                planted="tests/soak/planted.py: a leak of memory, of descriptors and of rows, and a lost job",
                found=(
                    "The checker of histories took a retry's delay from the moment of its effect, and saw jobs early "
                    "that were not. Mended.",
                    "A listener of events that went, or read nothing, stood in the log as a failure of the server. "
                    "Mended.",
                ),
            ),
            Proof(
                name="harness_chaos",
                module=["tests.bench.harness", "--checkout", "../harness", "chaos", "--record"],
                shown="./scripts/bench harness --checkout ../harness chaos --record",
                needs="../harness",
                tries="Runs the five scenarios of chaos of [somebody else's harness]"
                "(performance.md#chaos-and-pressure-in-somebody-elses-harness), beside other queues.",
                planted="an adapter whose worker acks before it runs loses jobs, and is found",
            ),
            Proof(
                name="key_kills",
                tests=["tests/cluster/test_proof_keys.py"],
                variables=["PINLATER_PROOF_KEYS"],
                tries="Kills servers and stores while jobs with keys come and go: each key has one job, and each chain "
                "is in order.",
            ),
            Proof(
                name="flow_kills",
                tests=["tests/flows/test_payroll_kills.py"],
                variables=["PINLATER_PAYROLL_USERS"],
                tries="Streams a payroll through three stages while workers, servers, stores and the keeper of flows "
                "are killed. Each check is sent, and recorded once.",
            ),
            Proof(
                name="body_kills",
                tests=["tests/bodies/test_body_kills.py"],
                variables=["PINLATER_BODY_KILLS"],
                tries="Kills servers while bodies come to a tier and go.",
            ),
            Proof(
                name="worker_kills",
                tests=["tests/workers/test_proof_kills.py", "tests/workers/test_proof_claims.py"],
                variables=["PINLATER_PROOF_JOBS"],
                tries="Kills workers, their server and its store. A file that jobs write says what ran.",
            ),
            Proof(
                name="random_calls",
                tests=["tests/conformance/test_model.py", "tests/conformance/test_key_walks.py"],
                variables=["PINLATER_TEST_EXAMPLES"],
                tries="Makes random calls on each store, and compares it with a state machine.",
                planted="tests/conformance/test_mutations.py",
            ),
        ),
        open=(
            "No machine was ever switched off: the disk of the power cuts is a program, with what POSIX allows.",
            "Nothing ran for longer than its row says, on no more than one machine.",
        ),
    ),
    Promise(
        text="The same call means the same on every store",
        heading="The same on every store",
        proofs=(
            Proof(
                name="conformance",
                tests=["tests/conformance"],
                tries="Runs one suite on each store, bare and through all layers of a server.",
                planted="tests/conformance/test_mutations.py takes guards out of scripts and statements: some test of "
                "the suite must fail for each",
            ),
            Proof(
                name="transfers",
                tests=["tests/transfers"],
                tries="Exports, imports and moves jobs between every two kinds of store, ended at any block.",
                planted="tests/transfers takes steps out, each with the test that must fail",
            ),
        ),
        open=("MySQL 8.4 and Dragonfly were never run ([stores.md](stores.md)); DynamoDB is its emulator.",),
    ),
    Promise(
        text="It is faster than other queues on the same machine",
        heading="Faster than others",
        proofs=(
            Proof(
                name="peers",
                module=["tests.bench", "peers"],
                shown="./scripts/bench peers",
                tries="Runs the same jobs through other queues, each with the defaults that its documents give.",
                planted="[performance.md](performance.md#beside-other-queues) has each round; a peer that wins stands "
                "there too",
            ),
            Proof(
                name="harness_pressure",
                module=["tests.bench.harness", "--checkout", "../harness", "pressure", "--record"],
                shown="./scripts/bench harness --checkout ../harness pressure --record",
                needs="../harness",
                tries="Runs the four scenarios of pressure of the same harness: a transaction that stays open, a high "
                "load, readers, bursts.",
                planted="jobs are counted and judged as in harness_chaos, which finds those that are lost; upkeep that "
                "locks the jobs' table for itself alone stops all beside the readers, and is found",
            ),
        ),
    ),
    Promise(
        text="Clients and workers of any language work, those of the original unchanged",
        heading="Any language",
        proofs=(
            Proof(
                name="callers",
                tests=["tests/languages/test_callers.py"],
                tries="Makes the same 22 steps with generated classes in twelve languages, in each form of the "
                "protocol, with certificates, after a silence and a restart.",
                planted="[language-traps.md](language-traps.md) says which traps were met",
            ),
            Proof(
                name="kits",
                module=["tests.kits"],
                shown=".venv/bin/python -m tests.kits",
                tries="Puts the worker kits of four languages through one trial.",
                found=(
                    "A Java worker stopped polling after a hand-back, and for ten seconds renewed no claim. Mended.",
                    "A panic in a Go handler and an odd error in a Node handler ended the process. Mended.",
                ),
            ),
        ),
    ),
    Promise(
        text="Tenants do not stall each other",
        heading="Tenants beside each other",
        proofs=(
            Proof(
                name="group_kills",
                tests=["tests/cluster/test_proof_groups.py"],
                variables=["PINLATER_PROOF_GROUP_KILLS"],
                tries="Kills workers, servers and stores while four groups with limits have a backlog. By a file that "
                "the jobs write, no group has ever more in progress than its limit, and every job is done.",
            ),
            Proof(
                name="limits",
                tests=["tests/cluster/test_proof_limits.py", "tests/cluster/test_proof_sick_shards.py"],
                tries="Holds limits over servers that come and go, and calls to shards that are sick.",
            ),
        ),
    ),
    Promise(
        text="A deploy, an upgrade and the way back fail no call",
        heading="Deploys and upgrades",
        proofs=(
            Proof(
                name="deploys",
                tests=[
                    "tests/server/test_processes.py",
                    "tests/server/test_draining.py",
                    "tests/workers/test_worker_stops.py",
                    "tests/cluster/test_deploys.py",
                ],
                tries="Rolls and ends servers under load, over connections that retry nothing; ends workers amid their "
                "jobs; has sixteen hosts of one deploy change the same queues and schedules at once.",
                found=(
                    "The command that stood here restarted nothing, and did not notice when the change of one host "
                    "undid that of another. Mended.",
                ),
            ),
            Proof(
                name="version_before",
                tests=["tests/stores/test_version_before.py", "tests/stores/test_marks.py"],
                tries="Opens what the version before stored, and has it refuse what it would misread.",
            ),
        ),
        open=(
            "Rolling from an earlier commit and back needs that commit beside this one: "
            "`.venv/bin/python -m tests.cluster.roll FOLDER`.",
        ),
    ),
    Promise(
        text="An operator is told what is wrong, once, and of nothing else",
        heading="Alarms",
        proofs=(
            Proof(
                name="drill",
                tests=["tests/drill"],
                tries="Makes nine faults at once, and reads every face: alarms, command line, HTTP, pages, webhooks.",
                planted="the faults are real ones",
                found=("A judgement that failed forgot what had been counted before it. Mended.",),
            ),
        ),
    ),
    Promise(
        text="No input breaks a server, and no caller has what is another's",
        heading="Hostile input",
        proofs=(
            Proof(
                name="fuzz",
                module=["tests.fuzz", "--minutes", "10", "--record"],
                shown=".venv/bin/python -m tests.fuzz --minutes 10 --record",
                tries="Changes valid calls, requests, stored entries and texts until a parser breaks: in process, with "
                "coverage, and at a real server, beside a caller who must be served.",
                planted="tests/fuzz/planted.py, each found within what CI gives it",
                found=(
                    "An entry in a store in another form (nested too deep, a number without end, an unpacked size of "
                    "hundreds of megabytes) ended what read it, and all beside it. Mended in 25 readers.",
                    "A browser that went while a page began left calls unawaited, with a traceback. Mended.",
                ),
            ),
            Proof(
                name="hostile",
                tests=[
                    "tests/server/test_hostile.py",
                    "tests/server/test_frames.py",
                    "tests/server/test_http_attacks.py",
                    "tests/extremes",
                ],
                variables=["PINLATER_MUTATE_S"],
                tries="Sends frames and requests that no client would, and each field at its ends.",
            ),
            Proof(
                name="access",
                tests=["tests/access"],
                tries="Makes every call as each role, and reads what errors tell of others.",
            ),
        ),
    ),
)
PROOFS = {proof.name: proof for promise in PROMISES for proof in promise.proofs}
