"""Bodies in tiers: references are kept, or the bodies stand in the export."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.bodies.tiers import object_path
from pinlater.model import Job
from pinlater.model.body_reference import BodyReference, BodyRule
from tests.queues import make_queue
from tests.server.commands import Shell
from tests.transfers.conftest import StoreOfKind, only
from tests.transfers.population import START_MS

BODY = b"large" * 3_000


@pytest.fixture
def tier(tmp_path: Path) -> Path:
    return tmp_path / "tier"


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, "127.0.0.1:1")


@only("sqlite-file", "redis")
async def test_bodies_of_tiers_come_along_where_that_is_said(source: StoreOfKind, tier: Path, shell: Shell) -> None:
    url, kept, whole = source.fresh(), source.fresh(), source.fresh()
    shard = await source.open(url)
    await make_queue(shard, "mail", START_MS)
    reference = BodyReference.new("disk", "mail", BODY, START_MS, BodyRule.SIZE)
    await shard.enqueue("mail", [Job(reference), Job(b"small")], START_MS)
    store_id = (await shard.ping()).store_id
    await source.close()
    refused = shell("export", url, "a.export", "--with-bodies", code=1)
    assert "--bodies disk=URL" in refused.err
    refused = shell("export", url, "a.export", "--bodies", f"disk=file://{tier}", code=1)
    assert "cannot be read" in refused.err
    path = tier / object_path(store_id, reference)
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    shell("export", url, "whole.export", "--bodies", f"disk=file://{tier}")
    shell("export", url, "kept.export")
    shell("import", "whole.export", whole)
    shell("import", "kept.export", kept)
    for place, expected in ((whole, BODY), (kept, reference)):
        there = await source.open(place)
        jobs = await there.peek("mail", [1], 10, 10**9, START_MS)
        assert [each.body for each in jobs] == [expected, b"small"]
        assert isinstance(jobs[0].body, BodyReference) is (place == kept)
        assert (await there.ping()).store_id == store_id
    path.write_bytes(BODY[1:])
    assert "damaged" in shell("export", url, "b.export", "--bodies", f"disk=file://{tier}", code=1).err
