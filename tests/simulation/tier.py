"""A tier of bodies: an object store in memory, which processes reach through the simulated network."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial

from pinlater.bodies.object_store import PAGE, StoredObject
from pinlater.errors import PinLaterError
from tests.simulation.network import TIER, Network
from tests.simulation.virtual_time import now_ms


class SimulatedTier:
    """The `ObjectStore` of one process. `objects` are those of all."""

    def __init__(self, network: Network, process: str, objects: dict[str, tuple[bytes, int]]) -> None:
        self._network, self._process, self._objects = network, process, objects

    async def _call(self, name: str, work: partial[object]) -> object:
        try:
            return await self._network.call(self._process, TIER, name, work)
        except PinLaterError as error:
            raise OSError(error.message) from error

    async def open(self) -> None:
        await self._call("tier open", partial(len, self._objects))

    async def put(self, path: str, body: bytes) -> None:
        await self._call("tier put", partial(self._put, path, bytes(body)))

    def _put(self, path: str, body: bytes) -> None:
        self._objects[path] = body, now_ms()

    async def get(self, path: str) -> bytes:
        body = await self._call("tier get", partial(self._get, path))
        assert isinstance(body, bytes)
        return body

    def _get(self, path: str) -> bytes:
        if path not in self._objects:
            raise FileNotFoundError(path)
        return self._objects[path][0]

    async def delete(self, paths: Sequence[str]) -> None:
        await self._call("tier delete", partial(self._delete, list(paths)))

    def _delete(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._objects.pop(path, None)

    async def pages(self, prefix: str) -> AsyncIterator[list[StoredObject]]:
        found = await self._call("tier list", partial(self._list, prefix))
        assert isinstance(found, list)
        for start in range(0, len(found), PAGE):
            yield found[start : start + PAGE]

    def _list(self, prefix: str) -> list[StoredObject]:
        below = prefix.rstrip("/") + "/"
        return [
            StoredObject(path, len(body), at_ms)
            for path, (body, at_ms) in sorted(self._objects.items())
            if path.startswith(below)
        ]

    async def children(self) -> list[str]:
        found = await self._call("tier list", partial(sorted, {path.partition("/")[0] for path in self._objects}))
        assert isinstance(found, list)
        return found

    async def close(self) -> None:
        """There is nothing to close."""
