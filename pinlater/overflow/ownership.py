"""The ownership of overflow shards: which process has this server's, and how to reach it and those of other servers.

The owner is the process that has locked `overflow.lock` in the data folder. It opens `overflow.db`, serves it at a free
port, and publishes that address: to the processes of this server in `overflow.json`, to other servers in its lease.

    {"address": "127.0.0.1:41234", "pid": 4711}

Only the owner writes `overflow.json`. After a crash it names a process that is gone, until another one has taken over.
"""

from __future__ import annotations

import fcntl
import json
import os
import socket
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import structlog

from pinlater.access.peers import PeerGate
from pinlater.background_tasks import BackgroundTasks
from pinlater.client.addresses import Address
from pinlater.client.async_client import AsyncClient
from pinlater.client.client_tls import Tls
from pinlater.client.pool import PoolLimits
from pinlater.data_folder.private_files import open_private_file, write_private_file
from pinlater.errors import PinLaterError
from pinlater.overflow.service import OverflowService
from pinlater.overflow.store import ServerContext
from pinlater.server.thrift_server import ThriftServer

_log = structlog.get_logger("pinlater.overflow")

STORE = "overflow.db"
_TLS = "tls://"
"""Before the address of an owner that speaks it."""

_EVERYWHERE = ("0.0.0.0", "::", "")
_END_WITHIN_S = 1.0

ADDRESS_FILE = "overflow.json"

TIMEOUT_S = 3.0
"""An owner that does not answer counts as one that cannot be reached."""


class OwnerLock:
    """Held until it is freed, or the process is gone, however it went."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def take(self) -> bool:
        """Whether this process has it now. OSError: the file cannot be made."""
        if self._descriptor is not None:
            return True
        descriptor = open_private_file(self._path)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            return False
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        return True

    def free(self) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def publish_address(folder: Path, address: str) -> None:
    """Tell the other processes of this server where its owner listens. OSError."""
    write_private_file(folder / ADDRESS_FILE, json.dumps({"address": address, "pid": os.getpid()}) + "\n")


def read_address(folder: Path) -> str | None:
    """The owner's address; None where no owner has published one."""
    try:
        address = json.loads((folder / ADDRESS_FILE).read_text(encoding="utf-8"))["address"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return address if isinstance(address, str) else None


def withdraw_address(folder: Path) -> None:
    """The owner listens no more."""
    (folder / ADDRESS_FILE).unlink(missing_ok=True)


class OwnedOverflow:
    """Made by `own`; closed once."""

    def __init__(
        self, folder: Path, shard_id: str, service: OverflowService, server: ThriftServer, port: int, since_ms: int
    ) -> None:
        self.service = service
        self.port = port
        self.since_ms = since_ms
        self._folder = folder
        self._file = str((folder / STORE).absolute())
        self._shard_id = shard_id
        self._server = server

    async def close(self) -> None:
        """Others are served no more; says how many jobs are left."""
        withdraw_address(self._folder)
        await self._server.drain(None, _END_WITHIN_S)
        await self._say_left()
        await self.service.close()

    async def _say_left(self) -> None:
        service = self.service
        try:
            await service.count_jobs()
        except PinLaterError as error:
            _log.warning("overflow_not_counted", shard=self._shard_id, error=error.message)
        if service.waiting or service.in_progress:
            _log.warning(
                "overflow_left",
                jobs=service.waiting,
                in_progress=service.in_progress,
                file=self._file,
                server=self._shard_id[1:],
            )


async def own(folder: Path, shard_id: str, bound: int, context: ServerContext, host: str) -> OwnedOverflow:
    """For who has the lock: open the file, and serve it at a free port of the host. PinLaterError, OSError."""
    service = OverflowService(folder / STORE, shard_id, bound, context)
    await service.open()
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        connections = max(16, context.limits.max_connections // 4)
        limits = replace(context.limits, drain_linger_s=0.0, max_connections=connections)
        gate = PeerGate(context.peers) if context.only_peers and context.peers is not None else None
        server = ThriftServer(service.api, limits, gate=gate, tls=context.tls)
        with socket.create_server((host, 0), family=family) as listener:
            port: int = listener.getsockname()[1]
            await server.start(listener)
        publish_address(folder, str(Address(_reachable(host), port)))
    except BaseException:
        await service.close()
        raise
    _log.info("overflow_owned", shard=shard_id, jobs=service.waiting, in_progress=service.in_progress)
    return OwnedOverflow(folder, shard_id, service, server, port, context.clock.now_ms())


def _reachable(host: str) -> str:
    """Where this machine reaches what listens there."""
    return ("::1" if ":" in host else "127.0.0.1") if host in _EVERYWHERE else host


class OwnerDirectory:
    """Remembers where each owner was seen last: when it is needed, the stores that named it may be gone."""

    def __init__(self, context: ServerContext, own: str) -> None:
        """Where the owner of `own` is, this machine knows better than the other servers."""
        self._context = context
        self._own = own
        self._shown = ""
        self._limits = PoolLimits(connections=8, connect_timeout_s=1.0, wire=context.limits.wire())
        self._addresses: dict[str, str] = {}
        self._clients: dict[str, AsyncClient] = {}
        self._closing = BackgroundTasks()

    def learn(self) -> None:
        """Ask again what the other servers tell."""
        for shard_id, address in self._context.addresses().items():
            if shard_id != self._own:
                self.seen(shard_id, address)

    def seen(self, shard_id: str, address: str | None) -> None:
        before = self._addresses.get(shard_id)
        if address is not None and address != before:
            self._addresses[shard_id] = address
            self._drop(before)

    def forget(self, shard_id: str) -> None:
        self._drop(self._addresses.pop(shard_id, None))

    def client(self, shard_id: str) -> AsyncClient | None:
        """None: nobody has told where its owner is."""
        address = self._addresses.get(shard_id)
        if address is None:
            return None
        token = "" if self._context.peers is None else self._context.peers.token
        if token != self._shown:
            self._shown = token
            for each in list(self._clients):
                self._drop(each)
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = AsyncClient(
                address.removeprefix(_TLS),
                timeout=TIMEOUT_S,
                pool=self._limits,
                tls=self._tls(shard_id, speaks_tls=address.startswith(_TLS)) or False,
                token=token,
                whole_lookups=False,
            )
        return client

    def _tls(self, shard_id: str, *, speaks_tls: bool) -> Tls | None:
        """None: in plain, which an owner here takes as this process does, and another one while it says no more."""
        accepting, calling = self._context.tls, self._context.peer_tls
        if accepting is None or calling is None or (accepting.takes_plain and not speaks_tls):
            return None
        name = next((name for name in accepting.own_names if "*" not in name), None)
        return replace(calling, server_name=name) if shard_id == self._own else calling

    def _drop(self, address: str | None) -> None:
        client = self._clients.pop(address, None) if address is not None else None
        if client is not None:
            self._closing.start(client.close())

    async def close(self) -> None:
        for shard_id in list(self._addresses):
            self.forget(shard_id)
        await self._closing.drain()


class DescribedLease(Protocol):
    """A lease, as far as it counts here."""

    @property
    def more(self) -> Mapping[str, Any]:
        """What its process has described."""


def overflow_addresses(leases: Iterable[DescribedLease]) -> dict[str, str]:
    """Where the owners are that the leases name, by overflow shard. Of two the one that took it over last counts:
    the lease of a process that died lives on for a while.
    """
    latest: dict[str, tuple[int, str]] = {}
    for lease in leases:
        shard_id, address, since = (lease.more.get(f"overflow_{name}") for name in ("id", "address", "since_ms"))
        if isinstance(shard_id, str) and isinstance(address, str) and isinstance(since, int):
            target = f"{_TLS}{address}" if lease.more.get("overflow_tls") is True else address
            latest[shard_id] = max(latest.get(shard_id, (0, "")), (since, target))
    return {shard_id: address for shard_id, (_, address) in latest.items()}
