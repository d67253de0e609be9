"""`pinlater export | import`: all that a shard holds, as one file. No server is asked."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import click

from pinlater.backends.store_transfer import ExportBlock
from pinlater.bodies.object_store import ObjectStore, StoreInvalid
from pinlater.bodies.tier import object_store
from pinlater.cli.connection import EXIT_CODES, ServerCommand, say
from pinlater.cli.exit_codes import EXIT_FAILED
from pinlater.cli.output import counted
from pinlater.cli.progress import StatusLine
from pinlater.clock import SystemClock
from pinlater.config.stores import StoreConfig, StoreMistake, expanded, parse_store
from pinlater.data_folder.private_files import new_private_file
from pinlater.durations import elapsed_text, seconds_text
from pinlater.redaction import SECRETS, secrets_of_url
from pinlater.transfers.export_file import ExportBroken, ExportEnd, ExportReader
from pinlater.transfers.offline_stores import opened_source, opened_store
from pinlater.transfers.shard_export import ShardExport, write_export
from pinlater.transfers.shard_import import ShardImport

STDIN_OR_OUT = "-"


class TransferProgress:
    """How far a transfer has come, shown on a terminal, and said at its end."""

    def __init__(self, jobs: int, begun_with: int = 0) -> None:
        self.jobs, self.done = jobs, begun_with
        self._begun_with = begun_with
        self._begun_s = time.monotonic()
        self._line = StatusLine()

    def __call__(self, done: int) -> None:
        self.done = done
        rate = self.rate
        left = max(0, self.jobs - done)
        until = f"; {seconds_text(round(left / rate))} left" if rate and left else ""
        self._line.show(f"{done:,} of about {max(done, self.jobs):,} jobs; {rate:,.0f} a second{until}")

    @property
    def rate(self) -> float:
        return (self.done - self._begun_with) / max(0.001, time.monotonic() - self._begun_s)

    @property
    def summary(self) -> str:
        took = elapsed_text(time.monotonic() - self._begun_s)
        return f"{counted(self.done, 'job')} in {took}, {self.rate:,.0f} a second"

    def clear(self) -> None:
        self._line.clear()


def store_of(text: str) -> StoreConfig:
    """The one store of an argument, `URL` or `ID=URL`."""
    SECRETS.keep(secrets_of_url(text))
    try:
        stores = expanded(parse_store(text))
    except StoreMistake as mistake:
        raise click.UsageError(f"STORE {mistake.value}; allowed: {mistake.allowed}") from mistake
    if len(stores) > 1:
        raise click.UsageError("a Redis Cluster has many shards: name one, with shard=NUMBER in the URL")
    return stores[0]


def _tiers(given: tuple[str, ...]) -> dict[str, ObjectStore]:
    tiers = {}
    for text in given:
        name, is_named, url = text.partition("=")
        if not is_named:
            raise click.UsageError(f"--bodies {text}: write NAME=URL, as for `pinlater serve --bodies`")
        try:
            tiers[name] = object_store(url)
        except StoreInvalid as invalid:
            raise click.UsageError(f"--bodies: {invalid}") from invalid
    return tiers


def run_to_end(transfer: Coroutine[Any, Any, None]) -> None:
    """Run it. Ctrl-C ends it also where it reads or writes a pipe that stands still: asyncio's own handler would wait
    until the loop goes on.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        asyncio.run(transfer)
        return
    signal.signal(signal.SIGINT, interrupt)
    try:
        asyncio.run(transfer)
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def broken_as_failure() -> Iterator[None]:
    try:
        yield
    except ExportBroken as broken:
        say(str(broken))
        raise SystemExit(EXIT_FAILED) from None


@click.command(
    cls=ServerCommand,
    name="export",
    short_help="Write all that a shard holds into a file.",
    epilog=f"""\b
Examples:
  pinlater export sqlite:////var/lib/pinlater/pinlater.db monday.export
  pinlater export postgresql+psycopg://pinlater@db1/jobs - | ssh vault 'cat > monday.export'
  pinlater export redis://10.0.0.7/0 whole.export --bodies s3=s3://mails/bodies

{EXIT_CODES}""",
)
@click.argument("store")
@click.argument("file", type=click.Path(dir_okay=False, allow_dash=True))
@click.option(
    "--bodies",
    "bodies",
    metavar="NAME=URL",
    multiple=True,
    help="Read bodies from this tier into the export, in place of references to them; repeatable.",
)
@click.option("--with-bodies", is_flag=True, help="Refuse the export where a body lies in a tier that is not named.")
@click.option("--force", is_flag=True, help="Write over a file that is there.")
def export(store: str, file: str, bodies: tuple[str, ...], with_bodies: bool, force: bool) -> None:
    """Write all that the shard in STORE holds into FILE (-: standard output).

    STORE is the address as a server has it (`--store`). No server is asked, and none has to run. An SQL store is
    exported as of one moment while servers work on it. Of Redis that cannot be had: stop the servers, or export from
    a copy of it (docs/backup.md). The file has the permissions of a private one.
    """
    tiers = _tiers(bodies) if bodies or with_bodies else None
    chosen = store_of(store)
    if file == STDIN_OR_OUT:
        run_to_end(_export(chosen, sys.stdout.buffer, tiers))
        return
    target = Path(file)
    if target.exists() and not force:
        raise click.UsageError(f"{target} is there already; --force writes over it")
    part = target.with_name(f"{target.name}.part")
    try:
        part.unlink(missing_ok=True)
        with os.fdopen(new_private_file(part), "wb") as opened:
            run_to_end(_export(chosen, opened, tiers))
            opened.flush()
            os.fsync(opened.fileno())
        part.replace(target)
    except OSError as error:
        say(f"{target} cannot be written: {error.strerror}; nothing is left of this export")
        raise SystemExit(EXIT_FAILED) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


async def _export(store: StoreConfig, file: BinaryIO, tiers: dict[str, ObjectStore] | None) -> None:
    async with opened_source(store) as shard:
        export = ShardExport(shard, SystemClock(), tiers)
        header = await export.header()
        progress = TransferProgress(header.jobs)
        try:
            await write_export(export, file, header, progress)
        finally:
            progress.clear()
        file.flush()
        say(f"shard {header.shard_id} exported: {progress.summary}")


@click.command(
    cls=ServerCommand,
    name="import",
    short_help="Import an export into an empty store of any kind.",
    epilog=f"""\b
Examples:
  pinlater import monday.export sqlite:////var/lib/pinlater/pinlater.db
  pinlater import monday.export postgresql+psycopg://pinlater@db2/jobs
  ssh vault cat monday.export | pinlater import - redis://10.0.0.8/0
  pinlater import --check monday.export

{EXIT_CODES}""",
)
@click.argument("file", type=click.Path(dir_okay=False, exists=True, allow_dash=True))
@click.argument("store", required=False)
@click.option("--replace", is_flag=True, help="Remove what the store holds first.")
@click.option("--check", is_flag=True, help="Only read the file to its end, and print what it holds.")
def import_(file: str, store: str | None, replace: bool, check: bool) -> None:
    """Bring the export in FILE (-: standard input) into STORE, which becomes that shard.

    STORE may be of any kind that is exported, and has to be empty. Ids, keys, order, results and all else are as they
    were, so descriptors stay valid. No server opens the store before the import is over and what it holds was
    compared. An import that was interrupted goes on where it ended when it is begun again with the same file.
    """
    with broken_as_failure():
        if check or store is None:
            if store is None and not check:
                raise click.UsageError("name the STORE, or give --check")
            with _opened(file) as opened:
                _say_what(ExportReader(opened))
            return
        chosen = store_of(store)
        if file != STDIN_OR_OUT:
            with _opened(file) as opened:
                ExportReader(opened).check()
        with _opened(file) as opened:
            run_to_end(_import(ExportReader(opened), chosen, replace))


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    if file == STDIN_OR_OUT:
        yield sys.stdin.buffer
        return
    with Path(file).open("rb") as opened:
        yield opened


def _say_what(reader: ExportReader) -> None:
    end = reader.check()
    bodies = ", with the bodies of tiers" if reader.header.with_bodies else ""
    queues = counted(len(end.totals.jobs), "queue")
    say(f"whole: shard {reader.header.shard_id}, {counted(end.totals.rows['job'], 'job')} of {queues}{bodies}")


async def read_blocks(reader: ExportReader, skipped: int) -> AsyncIterator[ExportBlock]:
    for block in reader.blocks(skipped):
        yield block


async def _import(reader: ExportReader, store: StoreConfig, replaces: bool) -> None:
    header = reader.header
    if store.id not in ("", header.shard_id):
        raise click.UsageError(
            f"the export is of shard {header.shard_id!r}, and keeps that id; STORE says {store.id!r}"
        )
    async with opened_store(StoreConfig(header.shard_id, store.url)) as shard:
        work = ShardImport(shard, SystemClock())
        state = await work.begin(header, replaces=replaces)
        if state.blocks:
            say(f"going on behind {counted(state.totals.rows['job'], 'job')} that are in the store already")
        progress = TransferProgress(header.jobs, state.totals.rows["job"])
        try:
            await work.take(read_blocks(reader, state.blocks), state, progress)
            end = reader.end
            assert isinstance(end, ExportEnd)
            await work.finish(header, end, state)
        except BaseException:
            progress.clear()
            say(f"{counted(progress.done, 'job')} are in the store; begun again with the same file, it goes on there")
            raise
        progress.clear()
        say(f"shard {header.shard_id} imported: {progress.summary}")
