"""The three parts of the suite, and the table of what CI leaves to the run before a release.

`--fast` is what a change is tried on again and again, without a store server. `--slow`, which is also what runs without
an option, is what CI runs. `--release` is all there is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest

from tests.conformance.bindings import binding_of, depth_of
from tests.stores.needs import SERVERS

FAST_PATHS = ["tests/unit", "tests/conformance", "tests/packaging/test_docs.py", "tests/packaging/test_house.py"]
"""Collected where the command names no path."""

ABOVE_THE_STORE = frozenset({"chain", "tiered", "service"})
"""Depths of the conformance suite that add code which is the same over every store."""

ABOVE_IN_CI = frozenset({"sqlite", "redis"})
"""The bindings over which CI runs that code: one of statements in memory, one of scripts over a network."""


DYNAMODB_IN_CI = frozenset({"test_claims", "test_dedupe_keys", "test_states"})
"""The modules of the conformance suite that CI runs there: the emulator takes as long for one as the six others do."""


@dataclass(frozen=True)
class Left:
    """Tests that CI leaves to `--release`: a pattern of their names, or none where their store and depth say it."""

    pattern: str | None
    what: str
    ci_has: str


LEFT = (
    Left(
        None,
        "the conformance suite through the chain, with a tier and under a service on SQLite's files, a Redis Cluster, "
        "MariaDB, PostgreSQL and DynamoDB",
        "the same on SQLite in memory and Redis; the bindings bare",
    ),
    Left(
        None,
        "the conformance suite on DynamoDB, whose emulator takes as long as the six others",
        "claims, states and keys that dedupe there; all of it on the six others",
    ),
    Left(
        r"tests/faults/test_sentinels\.py::(?!.*\[one\])",
        "a primary that sentinels watch: three failovers of all kinds with and without `wait`, a cut from its "
        "sentinels alone, two processes at once",
        "one primary that is killed, with `wait=1`",
    ),
    Left(
        r"tests/faults/test_redis_cluster\.py::.*\[all\]",
        "a Redis Cluster with a primary killed, another one frozen, and slots moved under load",
        "the primary that is killed",
    ),
    Left(
        r"tests/faults/test_kills\.py::.*\[\w+-many\]",
        "twenty kills of servers and stores",
        "six on each kind of store, one of each kind",
    ),
    Left(
        r"tests/faults/test_kills\.py::.*\[dynamodb\b",
        "kills of servers and of DynamoDB's emulator",
        "the same with Redis, MariaDB, PostgreSQL and SQLite",
    ),
    Left(
        r"tests/powercuts/test_planted_cuts\.py",
        "power cuts under stores and files that sync too little, each found within six cuts",
        "three cuts under every store and every file of a server, where there is `/dev/fuse`",
    ),
    Left(
        r"tests/cluster/test_proof_clock\.py::.*(\[ahead-two of each|\[behind-|right_again)",
        "a server whose clock is behind, or goes wrong and right again, and one over four shards",
        "one whose clock is an hour ahead, over one Redis; one on SQLite whose clock jumps",
    ),
    Left(
        r"tests/cluster/test_proof_sick_shards\.py::.*\[(stopped|refusing|slow)\]",
        "two shards of a cluster that are stopped, refuse or are slow",
        "two that are killed, and two that are silent",
    ),
    Left(
        r"tests/cluster/test_proof_limits\.py::.*\[10\]",
        "a maximum of ten in progress",
        "a maximum of three",
    ),
    Left(
        r"tests/workers/test_proof_memory\.py::.*\[whole\]",
        "the memory of a worker over 200,000 jobs",
        "over 40,000",
    ),
    Left(
        r"tests/workers/test_proof_kills\.py::.*\[mysql\]",
        "kills of workers, server and store with MariaDB",
        "the same with Redis and SQLite",
    ),
    Left(
        r"tests/packaging/test_packages\.py::test_the_full_install",
        "the wheel with every extra installed into an empty environment",
        "the wheel alone; the extras as `scripts/setup` installs them",
    ),
    Left(
        r"tests/packaging/test_chart\.py::test_helm",
        "the chart as Helm renders it, which Go builds first",
        "what it rendered, with a digest of the chart",
    ),
    Left(
        r"tests/packaging/test_compose\.py::test_the_services_with_postgresql",
        "Compose's services with PostgreSQL, run as processes",
        "those with Redis and Prometheus",
    ),
    Left(
        r"tests/packaging/test_image\.py::test_(the_whole_image|an_engine)",
        "the whole image, built from a folder of wheels without a network, and by a Docker engine where one answers",
        "its second stage over this checkout: user, health check, command, and a first job",
    ),
    Left(
        r"tests/languages/test_callers\.py::(?!.*\[(node\]|(c|node)-framed-binary\]))",
        "callers in all languages but Node, which are built first, in every form of the protocol, with certificates",
        "one in Node, also with certificates, and one in C, which shows that its classes compile",
    ),
    Left(
        r"tests/kits/.*::test_long_row",
        "the rows of the trial of worker kits that wait for the end of a lease or for a time-out",
        "all others, of each kit",
    ),
    Left(
        r"tests/server/test_planted_secrets\.py::.*\[all shards are out\]",
        "secrets of a server whose shards are all away",
        "of one that has a shard",
    ),
    Left(
        r"tests/server/test_python_switches\.py::.*\[-(O|I)-",
        "servers, commands and workers under `-O` and `-I`",
        "those under `-OO -W error`",
    ),
    Left(
        r"tests/dashboard/test_history_file\.py::test_two_thousand",
        "the history of 2,000 queues within 64 MiB",
        "that of 400 within 12 MiB",
    ),
    Left(
        r"tests/unit/test_hostile_answers\.py::.*\[1048576\]",
        "hostile answers of a megabyte",
        "those of 128 and 256 KiB, below and at the size that is walked",
    ),
    Left(
        r"tests/extremes/.*\[dynamodb\b",
        "the table of extreme requests on DynamoDB, whose emulator takes as long as all others",
        "the same on the four other stores",
    ),
    Left(
        r"tests/workers/test_deploy_delay\.py::.*\[long-",
        "400 jobs of a new type while half of the workers are old; `-s` shows how long they waited",
        "16 of them",
    ),
    Left(
        r"tests/workers/test_outbox_relay\.py::test_jobs_wait_for_servers_that_are_away.*\[(mysql|postgresql)\]",
        "outboxes in MariaDB and PostgreSQL whose servers are away",
        "one in SQLite",
    ),
    Left(
        r"tests/languages/test_python_clients\.py::.*\[(redis|mysql)-(binary-buffered|compact-\w+)\]",
        "every form of the protocol on Redis and MariaDB",
        "every form on SQLite, and one on the other two",
    ),
    Left(
        r"tests/drill/test_drill\.py::test_the_webhook_is_told_of_the_ends",
        "what webhooks receive when the alarms of the drill end, a minute after they began",
        "what they receive when these begin, and their ends on all other faces",
    ),
    Left(
        r"tests/cluster/test_proof_judges\.py::(?!test_a_(burst|shard)_.*\[redis\])",
        "the judge of alarms on MariaDB and PostgreSQL; its server and workers killed; no shard at all; "
        "each end reported once",
        "a shard that is stopped, and a burst that is drained, on Redis; the others in "
        "`tests/unit/test_alarm_judge.py`, under a held clock",
    ),
    Left(
        r"tests/browser/.*\[(mysql|redis)\b",
        "the dashboard in a browser over Redis and MariaDB",
        "every page and action over SQLite; what a page asks of a store is in the conformance suite",
    ),
    Left(
        r"tests/simulation/test_random_plans\.py::test_a_thousand",
        "a thousand random plans of simulated clusters, each fifth of up to half an hour",
        "twenty of a minute",
    ),
    Left(
        r"tests/transfers/test_pairs\.py::test_a_hundred_thousand_jobs_are_the_same",
        "exports and imports of 100,000 jobs of every kind between each two kinds of store",
        "the same with 350 jobs, which live on afterwards",
    ),
    Left(
        r"tests/simulation/test_planted\.py::test_(every|with_all)",
        "each planted fault that a plan of the simulation finds, and each of these plans with all guards in place",
        "five of the quickest",
    ),
    Left(
        r"tests/proof/test_planted\.py",
        "each fault that is planted in a copy of the checkout, for a proof of [proof.md](proof.md) to find",
        "that what is taken out stands in its file, once",
    ),
)
PATTERNS = [re.compile(row.pattern) for row in LEFT if row.pattern is not None]
SOAKS = {
    "PINLATER_FAILOVERS": "20",
    "PINLATER_KILL_CALLS": "1000",
    "PINLATER_KILL_ROUNDS": "200",
    "PINLATER_BODY_KILLS": "500",
    "PINLATER_MUTATE_S": "60",
    "PINLATER_PAYROLL_USERS": "10000",
    "PINLATER_POWER_CUTS": "500",
    "PINLATER_PROOF_GROUP_KILLS": "1000",
    "PINLATER_PROOF_JOBS": "10000",
    "PINLATER_PROOF_KEYS": "1000",
    "PINLATER_TEST_EXAMPLES": "50",
}
"""How long some tests go on before a release, each by a variable. With one of them no test has a time-out."""


def is_fast(item: pytest.Item, stores: set[str]) -> bool:
    """Whether a test that needs these stores is one of the part: no store server or file, and no mark `slow`."""
    if stores & SERVERS or item.get_closest_marker("slow"):
        return False
    binding = binding_of(item)
    return binding is None or not binding.lasting


def is_for_release(item: pytest.Item) -> bool:
    """Whether CI leaves this test out, by its store and depth or by a pattern."""
    binding = binding_of(item)
    if binding is not None:
        if depth_of(item) in ABOVE_THE_STORE:
            return binding.name not in ABOVE_IN_CI
        if binding.kind == "dynamodb" and item.path.stem not in DYNAMODB_IN_CI:
            return True
    return any(pattern.match(item.nodeid) for pattern in PATTERNS)


def table() -> str:
    """What is left to `--release`, as docs/testing.md has it."""
    rows = [("left to `--release`", "CI has"), ("---", "---"), *((row.what, row.ci_has) for row in LEFT)]
    return "\n".join(f"| {what} | {ci_has} |" for what, ci_has in rows)
