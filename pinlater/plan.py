"""The plan of a start: the stores are opened once and compared with the record of them, and decide what to run."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

import structlog

from pinlater.child_process import module_command
from pinlater.config import Config, StoreConfig, to_plain
from pinlater.data_folder.identity import RecordBroken, forget, known_stores
from pinlater.data_folder.password import (
    PASSWORD_FILE,
    PasswordFileUnsafe,
    hash_from_file,
    make_password_file,
    read_password_file,
)
from pinlater.data_folder.private_files import others_can_read, tighten_folder
from pinlater.errors import PinLaterError, StoreReplaced, install_command
from pinlater.listener import raise_descriptor_limit
from pinlater.server.generation import ServePlan
from pinlater.server.server_process import StartRefused
from pinlater.server.supervisor import ServeRefused
from pinlater.shard_factory import data_folder, note_stores, shard_set

log = structlog.get_logger("pinlater.plan")


_OTHER_DESCRIPTORS = 64
"""Of a process, beside those of its connections and stores: files, pipes, a connection that is being closed."""

_STORE_DESCRIPTORS = 8
"""Of each store, beside one for every call under way."""

_LEAST_CONNECTIONS = 16

_FLOW_DRIVERS = {
    "postgresql+psycopg": ("psycopg", "postgresql"),
    "mysql+pymysql": ("pymysql", "mysql"),
    "mysql+mysqldb": ("MySQLdb", "mysqldb"),
}
"""What the database of flows is reached by, and which extra brings it."""

_MARKS = " (version 2)", " (version 3)"
"""Behind the id of a shard in Redis, of what 7ab42ca0 marks; versions before keys take both together for an id."""

_DEFAULT_API = "127.0.0.1:9012"
_OPEN_TO_ALL = (
    "other machines reach the server without TLS, and there are no access rules; see --tls-cert and --rules, or "
    "listen on 127.0.0.1"
)
_NO_API = (
    f"this server has no dashboard and no HTTP: start it with --api {_DEFAULT_API}, or `pinlater api` beside it; --api "
    "none says that none is wanted"
)
_NO_OPERATOR = (
    "nobody may pause, set, drain or delete queues: start it with --admin-password-hash-file FILE, with what `pinlater "
    "admin hash-password` prints, or with --rules"
)
Check = Callable[[Config], Awaitable[None]]
"""Of a configuration with the ids that its stores turned out to have. ServeRefused."""


async def make_plan(config: Config, accept_new_stores: Sequence[str], check: Check | None = None) -> ServePlan:
    """Look at the stores, compare them with the record in the data folder, and say what to run. ServeRefused."""
    folder = data_folder(config)
    for store in config.stores:
        for key in store.key_files():
            if hint := others_can_read(Path(key)):
                raise ServeRefused(f"shard {store.id}: {hint}")
    _check_flow_driver(config.flows)
    tighten_folder(folder)
    known = _known(folder, accept_new_stores)
    resolved, stores = await _identified(within_descriptors(config, raise_descriptor_limit()), known)
    if check is not None:
        await check(resolved)
    guarded = [store.id for store in resolved.stores if store.id in stores and store.url.startswith("redis")]
    note_stores(folder, stores, [f"{shard_id}{mark}" for shard_id in guarded for mark in _MARKS])
    resolved = replace(resolved, api=_api_address(resolved))
    return ServePlan(
        host=config.host,
        port=config.port,
        processes=config.processes or 1,
        command=module_command("pinlater.app"),
        payload={
            "config": to_plain(resolved),
            "known": {**known, **stores},
            "drain_timeout_ms": config.drain_timeout_ms,
            "operator_hash": _operator_hash(resolved, folder),
            "exposed": _exposed(resolved),
        },
        drain_timeout_ms=config.drain_timeout_ms,
        facts={"shards": {store.id: store.masked() for store in resolved.stores}, "processes": config.processes},
    )


def _check_flow_driver(url: str) -> None:
    """ServeRefused: what speaks to the database of flows is not installed. It is loaded when the first flow comes."""
    driver, extra = _FLOW_DRIVERS.get(url.partition(":")[0], ("sqlite3", ""))
    if find_spec(driver) is None:
        raise ServeRefused(f"the database of flows needs the Python package {driver}: {install_command(extra)}")


def _operator_hash(config: Config, folder: Path) -> str:
    """The hash of the password in the data folder, made where it is missing: whoever can read that is the operator of
    an embedded server that only this machine can reach. "" where a password is configured, and for any other server.
    ServeRefused: others can read the file.
    """
    if config.admin_password_hash:
        return ""
    if reason := _why_not_private(config):
        if not config.rules:
            log.info("no_admin_password", reason=reason, hint=_NO_OPERATOR)
        return ""
    path = folder / PASSWORD_FILE
    try:
        if make_password_file(folder):
            log.info("admin_password_made", file=str(path))
        return hash_from_file(read_password_file(path, is_server=True))
    except PasswordFileUnsafe as unsafe:
        raise ServeRefused(f"{unsafe}; or start with --admin-password-hash-file") from unsafe
    except OSError as error:
        log.warning("no_admin_password", file=str(path), reason=error.strerror)
        return ""


def _exposed(config: Config) -> str:
    """Why callers may do more here than an operator may want, which the log says too; "" for no reason."""
    if (config.tls_cert and config.tls != "optional") or config.rules or _is_loopback(config.host):
        return ""
    log.warning("open_to_all", host=config.host, hint=_OPEN_TO_ALL)
    return f"open to all: {_OPEN_TO_ALL}"


def _api_address(config: Config) -> str:
    """Where the HTTP interface is served: by itself only of a server that only this machine can reach."""
    if config.api != "auto":
        return config.api
    reason, hint = _why_not_private(config), _NO_API
    if not reason and find_spec("aiohttp") is None:
        reason, hint = "the Python package aiohttp is missing", install_command("server")
    if not reason:
        return _DEFAULT_API
    log.info("no_http_interface", reason=reason, hint=hint)
    return "none"


def _why_not_private(config: Config) -> str:
    """Why this server has nothing by itself that is for its owner alone: others may reach it, or its store. "" where
    all jobs are kept in SQLite, and the server can be reached from this machine alone.
    """
    others = [store.id or store.masked() for store in config.stores if not store.embedded]
    if others:
        return f"not all jobs are kept in SQLite on this machine: store {', '.join(others)}"
    return "" if _is_loopback(config.host) else f"other machines may reach {config.host}"


def _is_loopback(host: str) -> bool:
    """Whether all addresses of a host can be reached from this machine alone."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError:
        return False
    return all(ip_address(str(address[0]).partition("%")[0]).is_loopback for *_, address in found)


def within_descriptors(config: Config, descriptors: int) -> Config:
    """With no more connections than leave each process the descriptors that its stores and files need."""
    room = descriptors - _OTHER_DESCRIPTORS - len(config.stores) * (config.max_calls + _STORE_DESCRIPTORS)
    if config.overflow_bytes:
        room = room * 4 // 5  # other servers connect to the overflow shard
    room = max(_LEAST_CONNECTIONS, room)
    http = max(_LEAST_CONNECTIONS, descriptors // 4)
    if config.max_connections > room:
        log.warning(
            "connections_bounded",
            configured=config.max_connections,
            at_most=room,
            descriptors=descriptors,
            hint="raise the hard limit of descriptors (ulimit -Hn, LimitNOFILE), or set --max-connections",
        )
    return replace(
        config,
        max_connections=min(config.max_connections, room),
        max_http_connections=min(config.max_http_connections, http),
    )


async def _identified(config: Config, known: Mapping[str, str]) -> tuple[Config, dict[str, str]]:
    """The configuration with the ids that the stores say, and the store behind each id that answers. ServeRefused."""
    try:
        shards = shard_set(config, known)
        await shards.open()
    except (StartRefused, PinLaterError) as refused:
        raise ServeRefused(_refusal(refused)) from refused
    try:
        ids = [member.shard.shard_id for member in shards.all]
        stores, failures = shards.store_ids(), shards.failures()
    finally:
        await shards.close()
    if not stores and not (config.overflow_bytes and all(ids)):  # with an overflow shard it can serve without
        raise ServeRefused(_why_none(failures, len(config.stores)))
    return replace(config, stores=_named(config, ids)), stores


def _why_none(failures: Sequence[str], stores: int) -> str:
    """The reason, when no store could be opened."""
    reasons = "; ".join(failures)
    if len(failures) == stores:
        return f"no store can be used; {reasons}"
    return f"{reasons}; which shards the others are is not known without it, unless all have IDs: --store ID=URL"


def _named(config: Config, ids: Sequence[str]) -> tuple[StoreConfig, ...]:
    """The stores with the ids that they turned out to have."""
    return tuple(
        replace(store, id=shard_id, dequeue_only=store.dequeue_only or shard_id in config.dequeue_only)
        for store, shard_id in zip(config.stores, ids, strict=True)
    )


def _refusal(error: Exception) -> str:
    if isinstance(error, StoreReplaced):
        return (
            f"{error.message}; for other stores than before choose another --data folder (it has the record of them); "
            "where a store was replaced on purpose, start once with --accept-new-store SHARD"
        )
    return str(error)


def _known(folder: Path, accept_new_stores: Sequence[str]) -> dict[str, str]:
    """What the record says. ServeRefused: it is broken."""
    try:
        if accept_new_stores:
            forget(folder, accept_new_stores)
        return known_stores(folder)
    except RecordBroken as broken:
        raise ServeRefused(str(broken)) from broken
    except OSError as error:
        log.warning("store_record_not_read", folder=str(folder), reason=error.strerror)
        return {}
