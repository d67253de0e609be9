"""With any guard taken out of any statement, a named test fails."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator

import pytest

from tests.conformance.bindings import BINDINGS, Binding
from tests.conformance.crowd import CROWD
from tests.conformance.mutation import Mutation
from tests.conformance.mutations_aging import AGING
from tests.conformance.mutations_dynamodb import DYNAMODB
from tests.conformance.mutations_groups import GROUPS
from tests.conformance.mutations_permits import PERMITS
from tests.conformance.mutations_redis import REDIS
from tests.conformance.mutations_redis_listed import LISTED as REDIS_LISTED
from tests.conformance.mutations_references import REFERENCES
from tests.conformance.mutations_sql import SQL
from tests.conformance.mutations_sql_keys import KEYS as SQL_KEYS
from tests.conformance.mutations_sql_listed import LISTED as SQL_LISTED
from tests.conformance.mutations_sql_postgres import POSTGRES
from tests.conformance.mutations_successors import SUCCESSORS
from tests.conformance.mutations_tags import TAGS
from tests.conformance.mutations_trails import TRAILS
from tests.conformance.subject import START_MS, Subject
from tests.conformance.test_identity import Stores
from tests.queues import make_queue
from tests.stores.places import Places

FAILURES = (AssertionError, ValueError, pytest.fail.Exception)
"""What a failing test raises: a wrong answer, other than one job, or no error where one was expected."""

BY_NAME = {binding.name: binding for binding in BINDINGS}
MUTATIONS = [
    *REDIS,
    *REDIS_LISTED,
    *SQL,
    *SQL_KEYS,
    *SQL_LISTED,
    *POSTGRES,
    *REFERENCES,
    *SUCCESSORS,
    *TAGS,
    *GROUPS,
    *PERMITS,
    *AGING,
    *TRAILS,
    *DYNAMODB,
]


def parameters() -> Iterator[object]:
    for mutation in MUTATIONS:
        binding = BY_NAME[mutation.store]
        yield pytest.param(mutation, binding, id=mutation.name, marks=pytest.mark.store(binding.kind))


@pytest.mark.parametrize(("mutation", "binding"), list(parameters()))
def test_without_this_guard_the_named_test_fails(
    mutation: Mutation, binding: Binding, places: Places, runner: asyncio.Runner
) -> None:
    with mutation.applied(), pytest.raises(FAILURES):
        run_until_it_fails(mutation, binding, places, runner)


def run_until_it_fails(mutation: Mutation, binding: Binding, places: Places, runner: asyncio.Runner) -> None:
    for _ in range(mutation.tries):
        run(mutation, binding, places, runner)


def run(mutation: Mutation, binding: Binding, places: Places, runner: asyncio.Runner) -> None:
    """The named test, on a shard of its own."""
    wanted = set(inspect.signature(mutation.test).parameters) - set(mutation.given)
    if wanted == {"stores"}:
        runner.run(mutation.test(Stores(binding, places), **mutation.given))
        return
    url = places.fresh()
    shards = [binding.make(url, "1") for _ in range(CROWD if wanted == {"crowd"} else 1)]
    subjects = [Subject(shard) for shard in shards]
    argument = {"subject": subjects[0], "shard": shards[0], "crowd": subjects}[wanted.pop()]
    try:
        for shard in shards:
            runner.run(shard.open())
        if argument is not shards[0]:
            runner.run(make_queue(shards[0], subjects[0].queue, START_MS))
        runner.run(mutation.test(argument, **mutation.given))
    finally:
        for shard in shards:
            runner.run(shard.close())
