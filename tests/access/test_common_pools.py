"""The tables of common pools in docs/access.md: they have every bound of the code, and a test runs every row.

A row is known by the name in code style behind its words, else by its words. Its test is a case of that name of an
argument `pool` in a module `test_*shares*.py`, or one that RUN_BY names.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module

import pytest

from pinlater.config.settings import SETTINGS
from pinlater.model.owner_bounds import OwnedKind
from tests.packaging.conftest import ROOT

COLUMNS = ["pool", "size", "share of one identity", "who is beyond it gets", "metric"]

_STORED = "access/test_stored_bounds.py"
_SERVER = "access/test_shares_of_pools.py"
_GUESSES = "access/test_neighbours.py"
RUN_BY: dict[str, tuple[str, str]] = {
    "flows in their database": (_STORED, "test_a_tenant_at_its_bounds_is_refused"),
    "items of flows": (_STORED, "test_a_tenant_at_its_bounds_is_refused"),
    "queues": (_STORED, "test_a_tenant_at_its_bounds_is_refused"),
    "schedules": (_STORED, "test_a_tenant_at_its_bounds_is_refused"),
    "tokens": (_STORED, "test_a_tenant_at_its_bounds_is_refused"),
    "jobs of a group of a queue": ("unit/test_group_pending_counts.py", "test_a_full_group_refuses"),
    "jobs of a queue": ("unit/test_limits_pause.py", "test_a_full_queue_refuses"),
    "answers to wrong tokens": (_GUESSES, "test_what_a_neighbour_guesses"),
    "admin passwords that are being checked": ("unit/test_admin_password.py", "test_one_address_has_few_places"),
    "who guesses": (_GUESSES, "test_guesses_of_one_identity"),
    "wrong passwords that are compared": ("unit/test_admin_password.py", "test_a_pause_compares_a_bounded_number"),
    "addresses from which the right password came": (_GUESSES, "test_all_processes_of_a_server_know"),
    "long polls of a server process": (_SERVER, '"long polls"'),
    "lookups with": (_SERVER, '"waiting lookups"'),
    "calls that wait for the end of a flow": (_SERVER, "test_calls_of_one_identity_that_wait_for_flows"),
    "connections to a server process": (_SERVER, '"connections that wait"'),
    "bytes of calls": (_SERVER, "test_an_address_has_half_of_the_bytes_of_calls"),
    "bytes of answers": ("server/test_unread.py", "test_lookups_that_nobody_reads"),
    "calls under way in a server process": ("unit/test_fair_use.py", "test_nobody_has_more_calls_under_way"),
    "calls at a store, and those that wait": (_SERVER, "test_an_identity_alone_leaves_room"),
    "calls at a store over many jobs": (_SERVER, "test_calls_of_one_identity_over_many_jobs"),
    "answers with jobs whose receipt": (_SERVER, "test_receipts_of_one_caller"),
    "claims that are released": (_SERVER, "test_claims_bound_to_connections"),
    "workers in the list": (_SERVER, "test_workers_of_one_identity"),
    "entries of the audit": (_SERVER, "test_an_identity_that_fills_the_audit"),
    "callbacks of flows": (_SERVER, "test_callbacks_to_a_receiver_that_hangs"),
    "bodies that were fetched ahead": (_SERVER, "test_bodies_of_one_queue"),
    "bytes of jobs in the overflow shard": (_SERVER, "test_jobs_of_one_identity_leave_room"),
    "expressions and lists of flows": ("flows/test_child_maker.py", "test_callers_have_their_turns"),
    "children that one transaction writes": ("flows/test_large_ends.py", "test_a_small_end_waits_for_one_part"),
    "expressions that are kept": ("flows/test_expressions.py", "test_what_is_kept_of_expressions_is_bounded"),
    "threads that search": ("access/test_evaluators.py", "test_searches_share_two_threads"),
}
"""By the first words of rows, the module that runs them, and what it has for that."""

OF_ONE_CALLER = {
    "answers_over_connection": "one connection",
    "answers_too_long": "one answer",
    "half_sent_closed": "one connection",
    "idle_closed": "one connection",
    "malformed_messages": "one message",
    "reads_paused": "one connection",
    "slow_readers_closed": "one connection",
    "streams_lost": "one connection",
    "unknown_methods": "one call",
    "identity_rate": "one identity",
    "identity_calls": "one identity",
    "identity_bytes": "one identity",
    "identity_connections": "one identity",
}
"""Bounds that nobody shares: what they are of."""

NO_POOLS = {
    "aborted_at_stop": "connections at the end of a process",
    "dynamodb_throughput": "the store's own bound",
    "unexpected_errors": "errors",
}

NAMED_BY_SHARE = {"answers_over_buffer": "answers_over_peer"}
"""Bounds of a whole pool whose row names that of a share."""

SETTINGS_OF_ONE = {
    "max-body": "one job",
    "max-claim-timeout": "one claim",
    "max-connection-answers": "one connection",
    "max-container": "one message",
    "max-frame": "one message",
    "max-frames-in-flight": "one connection",
    "max-identity-buffered": "one identity",
    "max-identity-calls": "one identity",
    "max-identity-connections": "one identity",
    "max-jobs": "one call",
    "max-steps": "one message",
    "max-unframed": "one message",
    "max-wait": "one call",
}
"""Settings of bounds that nobody shares: what they are of."""


def rows() -> list[list[str]]:
    page = (ROOT / "docs" / "access.md").read_text(encoding="utf-8")
    table = page.partition("\n## Common pools\n")[2].partition("\n## ")[0]
    lines = [line for line in table.splitlines() if line.startswith("|")]
    found = [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]
    assert COLUMNS in found
    return [row for row in found if row not in (COLUMNS, ["---"] * len(COLUMNS))]


def name_of(row: list[str]) -> str:
    named = re.search(r"\(`(\w+)`\)$", row[0])
    return named[1] if named else row[0]


@cache
def cases() -> set[str]:
    """Values and ids of the arguments `pool`."""
    found = set()
    for path in (ROOT / "tests").rglob("test_*shares*.py"):
        module = import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
        for test in vars(module).values():
            for mark in getattr(test, "pytestmark", ()):
                if mark.name == "parametrize" and "pool" in mark.args[0]:
                    found |= {getattr(case, "id", None) or str(case) for case in mark.args[1]}
    return found


@cache
def limits() -> set[str]:
    """By what the metric `limits_hit` tells bounds apart, as docs/metrics.md and the code say."""
    page = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8").partition("\n| limit | what was reached |\n")[2]
    documented = [line.split("|")[1] for line in page.partition("\n\n")[0].splitlines()[1:]]
    found = in_code_style(" ".join(documented)) | {kind.limit for kind in OwnedKind}
    for path in (ROOT / "pinlater").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            found.update(_limits_in(node))
    return found


def _limits_in(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Call):
        function = node.func
        called = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        texts = [each.value for each in node.args if isinstance(each, ast.Constant) and isinstance(each.value, str)]
        if called in ("_over", "SharedPool", "FairPlaces", "FairEntries", "Account") or (
            called == "by" and isinstance(function, ast.Attribute) and getattr(function.value, "id", "") == "Overloaded"
        ):
            yield from texts[:1]
        if called == "add" and "limits_hit" in texts:
            yield from texts[1:]
    if isinstance(node, ast.Subscript) and getattr(node.value, "attr", "") in ("counters", "_counters"):
        yield from [node.slice.value] if isinstance(node.slice, ast.Constant) else []


def in_code_style(text: str) -> set[str]:
    return set(re.findall(r"\w+", " ".join(re.findall(r"`[^`]+`", text))))


@pytest.mark.parametrize("row", rows(), ids=name_of)
def test_a_row_says_all_and_is_run(row: list[str]) -> None:
    assert len(row) == len(COLUMNS), row
    assert all(row), "a cell is empty"
    name = name_of(row)
    if name not in cases():
        [(module, has)] = [run for begin, run in RUN_BY.items() if name.startswith(begin)] or [("", "")]
        assert module, f"no test floods the pool {name!r}"
        assert has in (ROOT / "tests" / module).read_text(encoding="utf-8")


def test_no_pool_has_two_rows() -> None:
    names = [name_of(row) for row in rows()]
    assert sorted(set(names)) == sorted(names)


def test_every_bound_of_the_code_has_a_row() -> None:
    known = in_code_style(" ".join(cell for row in rows() for cell in row))
    named = {NAMED_BY_SHARE.get(limit, limit.removesuffix("_gave_way")) for limit in limits()}
    missing = named - known - OF_ONE_CALLER.keys() - NO_POOLS.keys()
    assert sorted(missing) == [], "give each a row in the tables of Common pools in docs/access.md, and a test"


def test_every_bound_that_is_a_setting_has_a_row() -> None:
    told = " ".join(cell for row in rows() for cell in row)
    bounds = {setting.name for setting in SETTINGS if setting.name.startswith("max-")}
    missing = {name for name in bounds - SETTINGS_OF_ONE.keys() if not re.search(rf"--{name}\b(?!-)", told)}
    assert sorted(missing) == [], "give each a row in the tables of Common pools in docs/access.md, and a test"


def test_what_is_run_and_what_is_left_out_is_there() -> None:
    names = [name_of(row) for row in rows()]
    assert [begin for begin in RUN_BY if not any(name.startswith(begin) for name in names)] == []
    assert OF_ONE_CALLER.keys() | NO_POOLS.keys() <= limits()
    assert {setting.name for setting in SETTINGS} >= SETTINGS_OF_ONE.keys()
