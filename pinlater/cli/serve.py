"""`pinlater serve`: the configuration's table as flags, and a supervisor that serves by it.

A planner makes the configuration anew at each reload: at first as the command line said, later as the files are then. A
shard leaves the configuration of a server that runs only when it is drained.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import structlog

from pinlater.backends.base import ConfigEntry, Shard
from pinlater.cli.connection import say
from pinlater.cli.exit_codes import EXIT_FAILED, EXIT_USAGE
from pinlater.cli.serve_dashboard import DashboardAnnouncer
from pinlater.clock import SystemClock
from pinlater.config import (
    SETTINGS,
    Config,
    ConfigInvalid,
    Loaded,
    Setting,
    StoreConfig,
    config_toml,
    default_of,
    from_plain,
    keep_secrets,
    load,
)
from pinlater.config.loader import HIDDEN_NAMES
from pinlater.config.settings import ENVIRONMENT_PREFIX, SECRET_NAMES, STORE_NAME, config_diff
from pinlater.data_folder.file_locks import FileInUse, FileLocks
from pinlater.data_folder.identity import RecordBroken, forget
from pinlater.data_folder.password import drop_password_file
from pinlater.data_folder.private_files import others_can_read
from pinlater.errors import PinLaterError, install_command
from pinlater.logs import configure
from pinlater.model import JobState
from pinlater.plan import make_plan
from pinlater.program_start import begin_service
from pinlater.queues.directory import SHARD_PREFIX, is_dequeue_only
from pinlater.redaction import secrets_of_url
from pinlater.server.generation import Reports, ServePlan
from pinlater.server.http_process import HttpProcess, HttpTokens
from pinlater.server.server_process import StartRefused
from pinlater.server.supervisor import CannotListen, ServeRefused, Supervisor, refuse_taken
from pinlater.server.watched_file import WatchedFile
from pinlater.shard_factory import bare_shard, data_folder, guard_settings
from pinlater.shards.keys.homes_record import HOMES, parse_record
from pinlater.shards.resilience import ResilientShard
from pinlater.standard_streams import drop_output
from pinlater.web.exporters import Exporters, missing_package
from pinlater.written import variable

_log = structlog.get_logger("pinlater.serve")
Flags = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, slots=True)
class AtStart:
    """What is said on the command line for one start alone: shard ids."""

    accept_new_stores: Sequence[str] = ()
    forget_shards: Sequence[str] = ()


@dataclass(slots=True)
class Planner:
    """Called for each plan; ServeRefused, and then nothing is changed."""

    flags: Flags
    first: Loaded
    at_start: AtStart = AtStart()
    _before: Config | None = None
    _locks: FileLocks = field(default_factory=FileLocks)
    tokens: HttpTokens = field(default_factory=HttpTokens)

    async def __call__(self) -> ServePlan:
        before = self._before
        config = self.first.config if before is None else self._reloaded()
        held = () if before is None else _files(before)
        if (missing := missing_package(config.http, config.api, config.statsd)) is not None:
            raise ServeRefused(
                f"--http, --api and --statsd need the Python package {missing}: {install_command('server')}"
            )
        try:
            self._locks.take(_files(config))
            plan = await (self._started(config) if before is None else self._changed(before, config))
        except (FileInUse, ServeRefused) as refused:
            self._locks.keep(held)
            raise ServeRefused(str(refused)) from refused
        plan.payload.update(self.tokens.hashes())
        after = from_plain(plan.payload["config"])
        gone = [] if before is None else config_diff(before, after).shards_removed

        def rolled() -> None:
            """Only now: the old processes had those shards in use, and on record, to their end."""
            current = self._before or after
            _forget(current, [each for each in gone if each not in _ids(current)])
            self._locks.keep(_files(current))

        return replace(plan, on_rolled=rolled)

    def started(self, plan: ServePlan) -> None:
        """The processes of this plan serve now."""
        self._before = config = from_plain(plan.payload["config"])
        if config.admin_password_hash:
            _drop_password(config)

    def _reloaded(self) -> Config:
        keep_secrets(self.flags, os.environ)
        try:
            return load(self.flags, os.environ).config
        except ConfigInvalid as invalid:
            raise ServeRefused("; ".join(str(mistake) for mistake in invalid.mistakes)) from invalid

    async def _started(self, config: Config) -> ServePlan:
        forgotten = self.at_start.forget_shards
        for store in config.stores:
            if store.id in forgotten:
                raise ServeRefused(f"shard {store.id} is configured: take it out of the configuration to forget it")
        try:
            refuse_taken(config.host, config.port)
        except CannotListen as error:
            raise ServeRefused(str(error)) from error
        _forget(config, forgotten)
        plan = await make_plan(config, self.at_start.accept_new_stores)
        for shard_id in sorted(plan.payload["known"].keys() - _ids(from_plain(plan.payload["config"]))):
            hint = f"what it holds is not handed out; if it is gone for good, start once with --forget-shard {shard_id}"
            _log.warning("shard_not_configured", shard=shard_id, hint=hint)
        return plan

    async def _changed(self, before: Config, config: Config) -> ServePlan:
        async def check(resolved: Config) -> None:
            removed = config_diff(before, resolved).shards_removed
            for store in before.stores:
                if store.id in removed:
                    await refuse_undrained(store, before)

        plan = await make_plan(config, (), check)
        facts = config_diff(before, from_plain(plan.payload["config"])).facts()
        if facts:
            _log.info("configuration_changed", **facts)
        configure(config.log_level, config.log_format)
        return plan


def _forget(config: Config, shard_ids: Sequence[str]) -> None:
    try:
        if shard_ids:
            forget(data_folder(config), shard_ids)
    except (OSError, RecordBroken) as error:
        _log.warning("shard_not_forgotten", shards=list(shard_ids), reason=str(error))


def _drop_password(config: Config) -> None:
    """What the server made while no password was configured opens nothing any more."""
    try:
        dropped = drop_password_file(data_folder(config), config.admin_password_hash)
    except OSError as error:
        _log.warning("admin_password_not_removed", reason=str(error))
    else:
        if dropped is not None:
            _log.info("admin_password_removed", file=str(dropped))


def _ids(config: Config) -> set[str]:
    return {store.id for store in config.stores}


def _files(config: Config) -> list[Path]:
    """Stores that belong to one server at a time."""
    return [Path(store.url.removeprefix("sqlite:///")) for store in config.stores if store.embedded]


_PAGE = 1_000


async def refuse_undrained(store: StoreConfig, config: Config) -> None:
    """Look at the store of a shard that is to go. ServeRefused, with what to do."""
    try:
        shard = ResilientShard(bare_shard(store), guard_settings(config))
        try:
            await shard.open()
            entries = await _entries(shard)
            jobs = await _jobs(shard, entries, range(1, config.priorities + 1))
            keys = await _keys(shard, entries)
        finally:
            await shard.close()
    except (StartRefused, PinLaterError, ValueError) as error:
        raise ServeRefused(
            f"shard {store.id} cannot be removed now: what it holds is not known: {error}; if it is lost, stop the "
            f"server and start it once with --forget-shard {store.id}"
        ) from error
    if jobs or keys or _takes_jobs(store, entries):
        what = f"holds {jobs} jobs that have not ended" if jobs else keys or "still takes new jobs"
        raise ServeRefused(
            f"shard {store.id} cannot be removed now: it {what}; first let workers empty it (`pinlater shard drain "
            f"{store.id}`, or dequeue-only = true in its table), then remove it, or send SIGHUP to try again"
        )


async def _keys(shard: Shard, entries: Sequence[ConfigEntry]) -> str:
    """What keys have there yet: it is their home, or knows windows that count."""
    homes = next((parse_record(each.text) for each in entries if each.name == HOMES), None)
    if homes is not None and shard.shard_id in homes.members:
        return "is where keys live"
    if await shard.list_windows(1, "", (await shard.ping()).now_ms):
        return "knows dedupe keys and send ids whose time has not passed, and which are on their way to other shards"
    return ""


async def _entries(shard: Shard) -> list[ConfigEntry]:
    found: list[ConfigEntry] = []
    revision = 0
    while (page := await shard.list_config(revision, _PAGE)).entries:
        found += page.entries
        revision = page.revision
    return found


async def _jobs(shard: Shard, entries: list[ConfigEntry], priorities: range) -> int:
    """PENDING and IN_PROGRESS ones, in all queues."""
    now_ms = SystemClock().now_ms()
    total = 0
    for entry in entries:
        if entry.is_deleted or "@" in entry.name:
            continue
        for state in (JobState.PENDING, JobState.IN_PROGRESS):
            for is_future in (False, True):
                total += await shard.count(entry.name, state, priorities, is_future, now_ms)
    return total


def _takes_jobs(store: StoreConfig, entries: list[ConfigEntry]) -> bool:
    """Neither the configuration nor an operator's command made it dequeue-only."""
    ordered = any(each.name == SHARD_PREFIX + store.id and is_dequeue_only(each) for each in entries)
    return not (store.dequeue_only or ordered)


def _warn_of_process_list(flags: Flags) -> None:
    """Of secrets in what every user of the machine can read."""
    for name in SECRET_NAMES:
        written = flags.get(name, ())
        texts = [written] if isinstance(written, str) else written
        if any(name in HIDDEN_NAMES or any(secrets_of_url(text)) for text in texts):
            variable_name = ENVIRONMENT_PREFIX + name.replace("-", "_").upper()
            hint = (
                f"every user of this machine can read the command line: give --{name}-file FILE, a file that only this "
                f"user can read, or put it into the file of --config, or into the variable {variable_name}"
            )
            _log.warning("password_in_process_list", flag=f"--{name}", hint=hint)


def _flag(setting: Setting) -> Callable[[Any], Any]:
    repeatable = ", repeatable" if setting.kind.repeatable else ""
    text = f"{setting.help} Allowed: {setting.kind.allowed}{repeatable}. [default: {default_of(setting) or 'none'}]"
    return click.option(
        f"--{setting.name}", setting.field, metavar=setting.kind.metavar, multiple=setting.kind.repeatable, help=text
    )


def _flags(command: Callable[..., None]) -> Callable[..., None]:
    for setting in reversed(SETTINGS):
        if setting.is_secret:
            command = _file_flag(setting.name, setting.kind.repeatable)(command)
        command = _flag(setting)(command)
    return command


def _file_flag(name: str, repeatable: bool) -> Callable[[Any], Any]:
    lines = ", one a line" if repeatable else ""
    return click.option(
        f"--{name}-file",
        metavar="FILE",
        multiple=repeatable,
        help=f"A file that only this user can read, with what --{name} says{lines}.",
    )


@click.command(
    epilog="""\b
Examples:
  pinlater serve
  pinlater serve --store 1=redis://127.0.0.1:6379/0 --store 2=redis://127.0.0.1:6380/0 --processes 4
  pinlater serve --config conf/mysql.toml --claim-timeout 10m
  pinlater serve --config conf/redis.toml --print-config
  PINLATER_PORT=9011 pinlater serve

\b
Signals: SIGTERM or SIGINT answers what was read and ends, a second one at once; SIGHUP reads the configuration again
and replaces the processes without losing a connection. So does a change of the --config file, within seconds. One that
has mistakes, or leaves out a shard that is not drained, changes nothing.
Exit codes: 0 stopped by a signal, 1 cannot start, 2 mistakes in the configuration (all are listed)."""
)
@click.option(
    "--store",
    metavar="[ID=]URL",
    multiple=True,
    help="Where jobs are kept, once per shard: sqlite:///path, redis://…, rediss://…, mysql+pymysql://…, "
    "mysql+mysqldb://…, postgresql+psycopg://… or dynamodb://REGION/TABLE. Without ID the id in the store decides. "
    "[default: one SQLite file in the data folder]",
)
@_file_flag(STORE_NAME, repeatable=True)
@click.option("--config", metavar="FILE", help="A TOML file with any of these settings.")
@_flags
@click.option("--print-config", is_flag=True, help="Print the configuration that counts, as a TOML file, and end.")
@click.option("--show-secrets", is_flag=True, help="Print passwords too, with --print-config.")
@click.option(
    "--accept-new-store",
    metavar="ID",
    multiple=True,
    help="The shard ID has a new store now, on purpose; descriptors of jobs in the old one are void.",
)
@click.option(
    "--forget-shard",
    metavar="ID",
    multiple=True,
    help="The shard ID is gone for good, with all that it holds, and is taken off the record of shards.",
)
def serve(
    print_config: bool,
    show_secrets: bool,
    accept_new_store: tuple[str, ...],
    forget_shard: tuple[str, ...],
    **given: Any,
) -> None:
    """Run a server.

    Every setting is a flag, a key of the file, and an environment variable: --claim-timeout, claim-timeout,
    PINLATER_CLAIM_TIMEOUT. Flags take precedence over variables, and variables over the file.
    """
    flags = {name.removesuffix("_ms").removesuffix("_bytes").replace("_", "-"): each for name, each in given.items()}
    written: Flags = {name: each for name, each in flags.items() if each not in (None, ())}
    watched = _watched(written)
    loaded = _loaded(written)
    if print_config:
        click.echo(config_toml(loaded, show_secrets=show_secrets), nl=False)
        return
    begin_service()
    configure(loaded.config.log_level, loaded.config.log_format)
    _warn_of_process_list(written)
    if watched is not None and loaded.has_secrets_from(watched.path) and (hint := others_can_read(watched.path)):
        _log.warning("secrets_readable", hint=hint)
    for name in loaded.unknown_variables:
        _log.warning("unknown_variable", name=name)
    planner = Planner(written, loaded, AtStart(accept_new_store, forget_shard))
    _run(planner, watched, announce=loaded.config.port == 0)


def _loaded(flags: Flags) -> Loaded:
    keep_secrets(flags, os.environ)
    try:
        return load(flags, os.environ)
    except ConfigInvalid as invalid:
        for mistake in invalid.mistakes:
            say(str(mistake))
        raise SystemExit(EXIT_USAGE) from None


def _watched(flags: Flags) -> WatchedFile | None:
    """The file that the configuration is read from, if there is one."""
    path = flags.get("config") or variable("PINLATER_CONFIG")
    return WatchedFile(Path(str(path)).expanduser()) if path else None


class Companions:
    """What follows the configuration of the server processes: the HTTP process, statsd and the status page."""

    def __init__(self, planner: Planner, exporters: Exporters, http: HttpProcess) -> None:
        self._planner = planner
        self._exporters = exporters
        self._http = http
        self.drain = http.drain
        self.hurry = http.hurry

    async def started(self, plan: ServePlan) -> None:
        self._planner.started(plan)
        await self._http.started(plan)
        try:
            await self._exporters.follow(plan.payload["config"])
        except Exception:  # jobs are served all the same
            _log.exception("metrics_not_exported")


def _run(planner: Planner, watched: WatchedFile | None, *, announce: bool) -> None:
    def on_ready(address: str) -> None:
        if announce:
            click.echo(address)

    drop_output()  # whoever wanted to read the address may be gone; those who connect are not
    announcer = DashboardAnnouncer()

    async def supervise() -> None:
        supervisor = Supervisor(planner, on_ready, watched)
        http = HttpProcess(planner.tokens, on_ready=announcer.api_ready)
        exporters = Exporters(Reports(supervisor.workers, http.living))
        supervisor.companion = Companions(planner, exporters, http)
        try:
            await supervisor.run()
        finally:
            await announcer.close()
            await exporters.close()

    try:
        asyncio.run(supervise())
    except ServeRefused as refused:
        say(f"cannot start: {refused}")
        raise SystemExit(EXIT_FAILED) from None
