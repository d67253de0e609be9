"""Bodies and results that lie in tiers, read into an export in place of their references."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any

from pinlater.backends.store_transfer import ExportBlock, ExportedJob, JobMore, ResultRow
from pinlater.bodies.object_store import ObjectStore
from pinlater.bodies.tiers import object_path
from pinlater.errors import StoreRefused
from pinlater.model.body_reference import BodyReference, body_digest

_AT_ONCE = 16
_LEFT_OUT = frozenset({"shared", "dropped"})
"""What stands of references alone."""


def with_bodies(
    stores: Mapping[str, ObjectStore], store_id: str
) -> Callable[[AsyncGenerator[ExportBlock, None]], AsyncGenerator[ExportBlock, None]]:
    """What changes the blocks of an export of this store. `stores`: the tiers by name. StoreRefused where a body cannot
    be read.
    """
    reads = asyncio.Semaphore(_AT_ONCE)

    async def read(reference: bytes) -> bytes:
        found = BodyReference(reference)
        name = found.parts.tier
        if name not in stores:
            raise StoreRefused(f"a body lies in the tier {name!r}: give its address, --bodies {name}=URL")
        async with reads:
            try:
                body = await stores[name].get(object_path(store_id, found))
            except Exception as error:
                raise StoreRefused(f"the body {found.text} cannot be read: {error}") from error
        if len(body) != found.length or body_digest(body) != found.parts.digest:
            raise StoreRefused(f"the body {found.text} is damaged: its length or hash is another one")
        return body

    async def job(row: Sequence[Any]) -> Sequence[Any]:
        if row[17] is None or not JobMore(*row[17]).is_reference:
            return row
        return ExportedJob(*row)._replace(body=await read(row[16]), more=JobMore(*row[17])._replace(is_reference=False))

    async def result(row: Sequence[Any]) -> Sequence[Any]:
        found = ResultRow(*row)
        if not found.is_reference:
            return row
        return found._replace(result=await read(found.result), is_reference=False)

    async def changed(blocks: AsyncGenerator[ExportBlock, None]) -> AsyncGenerator[ExportBlock, None]:
        async with aclosing(blocks):
            async for block in blocks:
                if block.kind in _LEFT_OUT:
                    continue
                change = {"job": job, "result": result}.get(block.kind)
                if change is None:
                    yield block
                else:
                    yield ExportBlock(block.kind, await asyncio.gather(*map(change, block.rows)))

    return changed
