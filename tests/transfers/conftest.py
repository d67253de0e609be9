"""Stores of each kind that is exported, one shard open at a time on each."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pinlater.backends.base import Shard
from tests.conformance.bindings import BINDINGS, Binding
from tests.stores.places import Places

KINDS = ("sqlite-file", "redis", "mysql", "postgres")
STORES = [binding.param() for binding in BINDINGS if binding.name in KINDS]


def only(*kinds: str, name: str = "source") -> pytest.MarkDecorator:
    """The fixture on these kinds of store alone."""
    chosen = [binding.param() for binding in BINDINGS if binding.name in kinds]
    return pytest.mark.parametrize(name, chosen, indirect=True)


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as loop_runner:
        yield loop_runner


class StoreOfKind:
    """Fresh stores of one kind, whose shards are closed at the end of the test."""

    def __init__(self, binding: Binding, places: Places) -> None:
        self._binding, self._places = binding, places
        self._open: list[Shard] = []

    @property
    def name(self) -> str:
        return self._binding.name

    def fresh(self) -> str:
        return self._places.fresh()

    async def open(self, url: str, shard_id: str = "1", *, marked: bool = False) -> Shard:
        shard = self._binding.make(url, shard_id)
        if marked:
            shard.opens_marked = True  # type: ignore[attr-defined]
        self._open.append(shard)
        await shard.open()
        return shard

    async def close(self) -> None:
        while self._open:
            await self._open.pop().close()


def _made(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[StoreOfKind]:
    binding: Binding = request.param
    made = StoreOfKind(binding, request.getfixturevalue(binding.places))
    yield made
    runner.run(made.close())


@pytest.fixture(params=STORES)
def source(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[StoreOfKind]:
    yield from _made(request, runner)


@pytest.fixture(params=STORES)
def target(request: pytest.FixtureRequest, runner: asyncio.Runner) -> Iterator[StoreOfKind]:
    yield from _made(request, runner)
