"""An import that ends anywhere goes on where it ended; a file that is cut or damaged is noticed."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from pinlater.backends.base import ClaimRequest
from pinlater.backends.extended import Offer
from pinlater.cli.exit_codes import EXIT_INTERRUPTED
from pinlater.errors import StoreRefused
from pinlater.model import ExtendedJob, OnDuplicate, ReplaceRunning
from pinlater.transfers.export_file import FORMAT, ExportBroken, ExportReader
from tests.queues import make_queue
from tests.server.commands import Shell
from tests.server.running import PROGRAM
from tests.server.test_full_stores import small_disk
from tests.transfers.conftest import StoreOfKind, only
from tests.transfers.holdings import differences, holdings
from tests.transfers.passage import cut_blocks, exported, imported
from tests.transfers.population import populate

JOBS = 250


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path, "127.0.0.1:1")


class _Cut(Exception):
    """Where an import is cut off."""


async def test_an_import_that_fails_at_any_block_goes_on_there(
    target: StoreOfKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the block is written, and behind it: then nobody told the command that it was."""
    cut_blocks(monkeypatch, 60)
    source = await target.open(target.fresh())
    now_ms = await populate(source, JOBS)
    content = await exported(source, now_ms)
    before = await holdings(source, now_ms)
    blocks = len(list(ExportReader(io.BytesIO(content)).blocks()))
    assert blocks > 10
    url = target.fresh()
    rounds = 0
    for rounds in range(2 * blocks):
        shard = await target.open(url, marked=True)
        cuts_before = rounds % 2 == 0

        def cut(shard: object = shard, *, cuts_before: bool = cuts_before) -> None:
            transfer = shard.transfer()  # type: ignore[attr-defined]
            done = [0]

            async def load(*given: object) -> None:
                done[0] += 1
                if cuts_before and done[0] == 2:
                    raise _Cut
                await type(transfer).load(transfer, *given)
                if not cuts_before:
                    raise _Cut

            transfer.load = load
            monkeypatch.setattr(shard, "transfer", lambda: transfer)

        cut()
        try:
            await imported(shard, content, now_ms)
        except _Cut:
            await target.close()
            with pytest.raises(StoreRefused, match="is not over"):
                await target.open(url)
            await target.close()
        else:
            break
    assert rounds >= blocks // 2
    await target.close()
    assert differences(before, await holdings(await target.open(url), now_ms)) == {}


@only("sqlite-file", "redis", name="target")
async def test_a_command_that_is_killed_goes_on(target: StoreOfKind, shell: Shell, tmp_path: Path) -> None:
    """It stands where its input ends, in the middle of a block, with all before that in the store or not yet."""
    source = await target.open(target.fresh())
    now_ms = await populate(source, JOBS)
    file, url, random = tmp_path / "whole.export", target.fresh(), Random(5)
    content = await exported(source, now_ms)
    file.write_bytes(content)
    for _ in range(3):
        command = shell.start("import", "-", url)
        part = content[: random.randrange(len(content) // 2, len(content))]
        while part:
            part = part[command.stdin.write(part) :]
        command.kill()
        command.communicate()
    shell("import", str(file), url)
    before = await holdings(source, now_ms)
    assert differences(before, await holdings(await target.open(url), now_ms)) == {}
    shell("import", str(file), url, code=1)


@only("sqlite-file")
async def test_an_export_that_is_cut_or_damaged_is_refused(source: StoreOfKind) -> None:
    shard = await source.open(source.fresh())
    content = await exported(shard, await populate(shard, 60))
    assert ExportReader(io.BytesIO(content)).check().totals.rows["job"] > 30
    random = Random(7)
    for _ in range(60):
        at = random.randrange(len(content))
        with pytest.raises(ExportBroken):
            ExportReader(io.BytesIO(content[:at])).check()
        damaged = content[:at] + bytes([content[at] ^ 1 << random.randrange(8)]) + content[at + 1 :]
        with pytest.raises(ExportBroken):
            ExportReader(io.BytesIO(damaged)).check()
    for more in (b"\n", content):
        with pytest.raises(ExportBroken, match="behind the end"):
            ExportReader(io.BytesIO(content + more)).check()


@only("sqlite-file")
async def test_a_newer_format_is_refused(source: StoreOfKind, monkeypatch: pytest.MonkeyPatch) -> None:
    shard = await source.open(source.fresh())
    content = await exported(shard, await populate(shard, 30))
    monkeypatch.setattr("pinlater.transfers.export_file.FORMAT", 0)
    with pytest.raises(ExportBroken, match="newer"):
        ExportReader(io.BytesIO(content))


@only("sqlite-file")
async def test_an_export_without_successors_has_the_first_format(source: StoreOfKind) -> None:
    """Versions that do not know these read it, and no other."""
    shard = await source.open(source.fresh())
    await make_queue(shard, "mail", 0)
    fields = {"dedupe_key": "d", "on_duplicate": OnDuplicate.REPLACE, "replace_running": ReplaceRunning.ENQUEUE}
    offer = Offer(ExtendedJob(b"", **fields))
    await shard.enqueue_extended("mail", [offer], 1)
    assert ExportReader(io.BytesIO(await exported(shard, 2))).header.format == 1
    await shard.claim("mail", [ClaimRequest("h:1:2:3:me", 1, (1,), 60_000, 1_000)], 2)
    await shard.enqueue_extended("mail", [offer], 2)
    assert ExportReader(io.BytesIO(await exported(shard, 2))).header.format == FORMAT


async def test_a_store_that_holds_something_is_replaced_only_where_that_is_said(target: StoreOfKind) -> None:
    source = await target.open(target.fresh())
    now_ms = await populate(source, 60)
    content = await exported(source, now_ms)
    url = target.fresh()
    other = await target.open(url, marked=True)
    await populate(other, 40, seed=9)
    with pytest.raises(StoreRefused, match="empty"):
        await imported(other, content, now_ms)
    await imported(other, content, now_ms, replaces=True)
    assert differences(await holdings(source, now_ms), await holdings(await target.open(url), now_ms)) == {}
    third = await target.open(target.fresh(), "2", marked=True)
    with pytest.raises(StoreRefused, match="shard '2'"):
        await imported(third, content, now_ms)


async def test_two_exports_are_not_mixed(target: StoreOfKind) -> None:
    source = await target.open(target.fresh())
    now_ms = await populate(source, 60)
    url = target.fresh()
    shard = await target.open(url, marked=True)

    def cut(done: int) -> None:
        raise _Cut

    with pytest.raises(_Cut):
        await imported(shard, await exported(source, now_ms), now_ms, on_progress=cut)
    with pytest.raises(StoreRefused, match="another export"):
        await imported(shard, await exported(source, now_ms), now_ms)
    await imported(shard, await exported(source, now_ms), now_ms, replaces=True)


async def test_a_store_in_use_is_no_target_and_redis_no_source(target: StoreOfKind) -> None:
    source = await target.open(target.fresh())
    now_ms = await populate(source, 60)
    content = await exported(source, now_ms)
    other = await target.open(target.fresh(), marked=True)
    for shard in (source, other):
        await shard.kv_put("lease", "server/1", b"{}", now_ms + 60_000, now_ms)
    with pytest.raises(StoreRefused, match="server/1"):
        await imported(other, content, now_ms)
    if target.name == "redis":
        with pytest.raises(StoreRefused, match="server/1"):
            await exported(source, now_ms)
    else:
        assert await exported(source, now_ms)


@only("sqlite-file", "mysql", "postgres")
async def test_an_export_of_sql_shows_one_moment(source: StoreOfKind, monkeypatch: pytest.MonkeyPatch) -> None:
    """What servers do meanwhile is not in it."""
    cut_blocks(monkeypatch, 20)
    url = source.fresh()
    shard, server = await source.open(url), await source.open(url)
    now_ms = await populate(shard, 120)
    await shard.kv_put("lease", "server/1", b"{}", now_ms + 60_000, now_ms)
    before = await holdings(shard, now_ms)
    blocks = [
        block
        async for block in shard.transfer().blocks(now_ms)  # type: ignore[attr-defined]
        if await populate(server, 4, seed=3)
    ]
    jobs = [row for block in blocks if block.kind == "job" for row in block.rows]
    assert len(jobs) == sum(len(before[f"jobs {queue}"]) for queue in ("mail", "reports", "mail_dead"))


def test_a_kind_of_store_that_is_not_exported_says_so(shell: Shell) -> None:
    refused = shell("export", "dynamodb://eu-west-1/jobs", "x.export", code=1)
    assert "point-in-time recovery" in refused.err
    assert not (shell.folder / "x.export").exists()


@only("sqlite-file")
@pytest.mark.slow
async def test_a_full_disk_leaves_no_part_of_an_export_and_an_import_goes_on(
    source: StoreOfKind, shell: Shell, tmp_path: Path
) -> None:
    url = source.fresh()
    shard = await source.open(url)
    now_ms = await populate(shard, JOBS)
    before = await holdings(shard, now_ms)
    shell("export", url, "whole.export")
    with small_disk(tmp_path / "disk") as disk:
        other, there = disk / "other", f"sqlite:///{disk}/there.db"

        def leave(kib: int) -> None:
            other.unlink(missing_ok=True)
            room = os.statvfs(disk)
            other.write_bytes(bytes(room.f_bavail * room.f_frsize - (kib << 10)))

        leave(100)
        refused = shell("export", url, f"{disk}/late.export", code=1)
        assert "late.export cannot be written: No space left on device; nothing is left" in refused.err
        assert list(disk.iterdir()) == [other]
        leave(600)
        assert "the disk is full" in shell("import", "whole.export", there, code=1).err
        other.unlink()
        assert "going on" in shell("import", "whole.export", there).err
        assert differences(before, await holdings(await source.open(there), now_ms)) == {}
        await source.close()


@only("sqlite-file")
@pytest.mark.slow
async def test_a_command_that_an_operator_ends_says_what_stands(
    source: StoreOfKind, shell: Shell, tmp_path: Path
) -> None:
    """By Ctrl-C, while it waits for more of its input, or for whoever takes its output."""
    url, target = source.fresh(), source.fresh()
    shard = await source.open(url)
    now_ms = await populate(shard, 2_000)
    content, before = await exported(shard, now_ms), await holdings(shard, now_ms)
    (tmp_path / "whole.export").write_bytes(content)
    with _piped(tmp_path, "import", "-", target) as command:
        assert command.stdin is not None
        command.stdin.write(content[: len(content) // 2])
        command.stdin.flush()
        said = _interrupted(command)
    assert "begun again with the same file, it goes on there" in said
    shell("import", "whole.export", target)
    assert differences(before, await holdings(await source.open(target), now_ms)) == {}
    with _piped(tmp_path, "export", url, "-") as command:
        _interrupted(command)


def _piped(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    pipe = subprocess.PIPE
    return subprocess.Popen([PROGRAM, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, cwd=folder)


def _interrupted(command: subprocess.Popen[bytes]) -> str:
    """What it says when it is interrupted while it waits for a pipe."""
    while "pipe" not in Path(f"/proc/{command.pid}/wchan").read_text():
        time.sleep(0.01)
        assert command.poll() is None
    command.send_signal(signal.SIGINT)
    assert command.wait(30) == EXIT_INTERRUPTED
    assert command.stderr is not None
    said = command.stderr.read().decode()
    assert "Traceback" not in said
    return said


@only("sqlite-file")
async def test_an_input_without_anything_says_that_it_failed(source: StoreOfKind, shell: Shell) -> None:
    """As of a pipe whose export was refused."""
    assert "there is nothing in this export" in shell("import", "-", source.fresh(), code=1).err
    assert "there is nothing in this export" in shell("import", "--check", "-", stdin=b"PINLAT", code=1).err
