"""What `pinlater serve` runs: at first as the command line said, later as the configuration is then."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from pinlater.app import data_folder
from pinlater.cli.removal import refuse_undrained
from pinlater.config import Config, ConfigInvalid, Loaded, from_plain, keep_secrets, load
from pinlater.config.settings import config_diff
from pinlater.identity import RecordBroken, forget
from pinlater.logs import configure
from pinlater.password import drop_password_file
from pinlater.plan import make_plan
from pinlater.server.file_locks import FileInUse, FileLocks
from pinlater.server.generation import Plan
from pinlater.server.supervisor import ServeRefused

log = structlog.get_logger("pinlater.serve")
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

    async def __call__(self) -> Plan:
        before = self._before
        config = self.first.config if before is None else self._reloaded()
        held = () if before is None else _files(before)
        try:
            self._locks.take(_files(config))
            plan = await (self._started(config) if before is None else self._changed(before, config))
        except (FileInUse, ServeRefused) as refused:
            self._locks.keep(held)
            raise ServeRefused(str(refused)) from refused
        after = from_plain(plan.payload["config"])
        gone = [] if before is None else config_diff(before, after).shards_removed

        def rolled() -> None:
            """Only now: the old processes had those shards in use, and on record, to their end."""
            current = self._before or after
            _forget(current, [each for each in gone if each not in _ids(current)])
            self._locks.keep(_files(current))

        return replace(plan, on_rolled=rolled)

    def started(self, plan: Plan) -> None:
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

    async def _started(self, config: Config) -> Plan:
        forgotten = self.at_start.forget_shards
        for store in config.stores:
            if store.id in forgotten:
                raise ServeRefused(f"shard {store.id} is configured: take it out of the configuration to forget it")
        _forget(config, forgotten)
        plan = await make_plan(config, self.at_start.accept_new_stores)
        for shard_id in sorted(plan.payload["known"].keys() - _ids(from_plain(plan.payload["config"]))):
            hint = f"what it holds is not handed out; if it is gone for good, start once with --forget-shard {shard_id}"
            log.warning("shard_not_configured", shard=shard_id, hint=hint)
        return plan

    async def _changed(self, before: Config, config: Config) -> Plan:
        async def check(resolved: Config) -> None:
            removed = config_diff(before, resolved).shards_removed
            for store in before.stores:
                if store.id in removed:
                    await refuse_undrained(store, before)

        plan = await make_plan(config, (), check)
        facts = config_diff(before, from_plain(plan.payload["config"])).facts()
        if facts:
            log.info("configuration_changed", **facts)
        configure(config.log_level, config.log_format)
        return plan


def _forget(config: Config, shard_ids: Sequence[str]) -> None:
    try:
        if shard_ids:
            forget(data_folder(config), shard_ids)
    except (OSError, RecordBroken) as error:
        log.warning("shard_not_forgotten", shards=list(shard_ids), reason=str(error))


def _drop_password(config: Config) -> None:
    """What the server made while no password was configured opens nothing any more."""
    try:
        dropped = drop_password_file(data_folder(config), config.admin_password_hash)
    except OSError as error:
        log.warning("admin_password_not_removed", reason=str(error))
    else:
        if dropped is not None:
            log.info("admin_password_removed", file=str(dropped))


def _ids(config: Config) -> set[str]:
    return {store.id for store in config.stores}


def _files(config: Config) -> list[Path]:
    """Stores that belong to one server at a time."""
    return [Path(store.url.removeprefix("sqlite:///")) for store in config.stores if store.embedded]
