"""`pinlater shard move`: a shard goes from its store into another one; stores are opened by their addresses."""

from __future__ import annotations

import asyncio
import os

import click

from pinlater.backends.base import Shard
from pinlater.backends.store_transfer import CLOSED, StoreFacts, transfer_of
from pinlater.cli.connection import can_ask, confirm, say
from pinlater.cli.exit_codes import EXIT_FAILED
from pinlater.cli.export_commands import TransferProgress, store_of
from pinlater.cli.output import counted
from pinlater.cli.progress import StatusLine
from pinlater.clock import SystemClock
from pinlater.config import ConfigInvalid, load
from pinlater.config.stores import StoreConfig
from pinlater.redaction import redact_url
from pinlater.transfers.offline_stores import opened_source, opened_store
from pinlater.transfers.shard_import import ShardImport
from pinlater.transfers.shard_move import ShardMove


def source_of(shard_id: str, from_store: str | None, config: str | None) -> StoreConfig:
    """Where the shard is now: as the command line says, or as the configuration of a server does."""
    if from_store is not None:
        given = store_of(from_store)
        if given.id not in ("", shard_id):
            raise click.UsageError(f"--from names shard {given.id}, not {shard_id}")
        return StoreConfig(shard_id, given.url)
    try:
        stores = load({"config": config} if config else {}, os.environ).config.stores
    except ConfigInvalid as invalid:
        raise click.UsageError("; ".join(str(mistake) for mistake in invalid.mistakes)) from invalid
    for store in stores:
        if store.id == shard_id:
            return store
    raise click.UsageError(
        f"shard {shard_id} is not in the configuration: give its address, --from URL, or --config PATH"
    )


def move_shard(
    shard_id: str,
    new_store: str,
    *,
    from_store: str | None,
    config: str | None,
    undo: bool,
    replace: bool,
    wait_ms: int,
    yes: bool,
) -> None:
    source, target = source_of(shard_id, from_store, config), store_of(new_store)
    if target.id not in ("", shard_id):
        raise click.UsageError(f"{new_store} names shard {target.id}: a shard keeps its id, {shard_id}")
    if source.url == target.url:
        raise click.UsageError("the shard is in that store already")
    target = StoreConfig(shard_id, target.url)
    if undo:
        asyncio.run(_undo(source, target))
        return
    if not (yes or can_ask()):
        raise click.UsageError("without a terminal to ask on, --yes is needed")
    say(
        f"shard {shard_id} is out at all servers until they have its new address: its jobs wait, enqueues of keys that "
        "live there are refused, and other jobs go to other shards"
    )
    if not yes:
        confirm(f"Move shard {shard_id} to {redact_url(target.url)}?", "nothing was changed")
    asyncio.run(_move(source, target, replace, wait_ms / 1000))


async def _move(source: StoreConfig, target: StoreConfig, replaces: bool, at_least_s: float) -> None:
    async with opened_source(source) as old, opened_store(target) as new:
        move, line = ShardMove(old, SystemClock()), StatusLine()
        facts = await move.facts()
        if facts.mark == CLOSED and await _has_it(new, facts):
            say(f"shard {source.id} is there already")
            _say_what_is_left(target)
            return
        await ShardImport(new, SystemClock()).check(facts.shard_id, replaces=replaces)
        await move.close()
        try:

            def waits(facts: StoreFacts) -> None:
                line.show(f"waiting until servers have left the shard: {', '.join(facts.servers) or 'calls under way'}")

            await move.wait_until_left(at_least_s, waits)
            line.clear()
            header, state = await move.begin(new, replaces=replaces)
            progress = TransferProgress(header.jobs, state.totals.rows["job"])
            if state.blocks:
                say(f"going on behind {counted(progress.done, 'job')} that are in the new store already")
            try:
                await move.copy(new, header, state, progress)
            finally:
                progress.clear()
        except BaseException:
            line.clear()
            say(
                f"shard {source.id} is closed, and nothing of it is lost: the same command goes on, and with --undo "
                "it is used again where it was"
            )
            raise
    say(f"shard {source.id} moved: {progress.summary}")
    _say_what_is_left(target)


def _say_what_is_left(target: StoreConfig) -> None:
    say(
        f"now give servers its new address, {redact_url(target.url)}, in its table or by --store; the old store is "
        "closed, and no server opens it any more"
    )


async def _undo(source: StoreConfig, target: StoreConfig) -> None:
    async with opened_source(source) as old:
        move = ShardMove(old, SystemClock())
        facts = await move.facts()
        if facts.mark != CLOSED:
            say(f"shard {source.id} is not closed: servers can use it")
            return
        async with opened_store(target) as new:
            is_over = await _has_it(new, facts)
        if is_over:
            say(
                f"shard {source.id} is in {redact_url(target.url)} now, and may have changed there: to take it back, "
                f"move it back, with --from {redact_url(target.url)} and --replace"
            )
            raise SystemExit(EXIT_FAILED)
        await move.take_back()
    say(f"shard {source.id} is used again where it was; what the new store has of it can be removed")


async def _has_it(shard: Shard, facts: StoreFacts) -> bool:
    """Whether the new store is the shard already."""
    there = await transfer_of(shard).facts(SystemClock().now_ms())
    return there.mark == 0 and there.store_id == facts.store_id
