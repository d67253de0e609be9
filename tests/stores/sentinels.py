"""A Redis with two replicas and three sentinels, each a process, and a relay before each Redis that can cut it off."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

import redis

from tests.faults.proxy import Proxy
from tests.stores.redis_server import RedisServer

NAME = "jobs"
DOWN_AFTER_MS = 1_000
SENTINELS = 3
REPLICAS = 2
READY_WITHIN_S, START_WITHIN_S = 120.0, 40.0


class ReplicatedRedis(RedisServer):
    """Known to the others by the port of its relay. Connections of a replica come from an address of its own."""

    def __init__(self, number: int, *options: str) -> None:
        super().__init__()
        self.relay = Proxy(self.port)
        self.comes_from = f"127.0.0.{10 + number}"
        self.options = options

    def command(self) -> list[str]:
        announced = ["--replica-announce-ip", "127.0.0.1", "--replica-announce-port", str(self.relay.port)]
        source = ["--bind-source-addr", self.comes_from]
        return [*super().command(), *announced, *source, "--repl-diskless-sync-delay", "0", *self.options]

    def role(self) -> str:
        with redis.Redis(port=self.port, socket_timeout=1) as client:
            return str(client.role()[0].decode())


SENTINELS_COME_FROM = "127.0.0.2"
"""The address of their connections, so that a relay can cut them off and nobody else."""


class Sentinel(RedisServer):
    """`primary`: the port that it watches at first."""

    def __init__(self, primary: int) -> None:
        super().__init__()
        (self.directory / "sentinel.conf").write_text(
            f"port {self.port}\nbind 127.0.0.1\nbind-source-addr {SENTINELS_COME_FROM}\ndir {self.directory}\n"
            "sentinel announce-ip 127.0.0.1\n"
            f"sentinel monitor {NAME} 127.0.0.1 {primary} 2\n"
            f"sentinel down-after-milliseconds {NAME} {DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {NAME} 2000\nsentinel parallel-syncs {NAME} {REPLICAS}\n"
        )

    def command(self) -> list[str]:
        program, *_ = super().command()
        return [program, str(self.directory / "sentinel.conf"), "--sentinel"]


class SentinelGroup:
    """`options` are those of each Redis."""

    def __init__(self, *options: str) -> None:
        self._options = options
        self._make()

    def _make(self) -> None:
        options = self._options
        self.nodes = [ReplicatedRedis(number, *options) for number in range(1 + REPLICAS)]
        primary = self.nodes[0].relay.port
        for node in self.nodes[1:]:
            node.options = (*node.options, "--replicaof", "127.0.0.1", str(primary))
        self.sentinels = [Sentinel(primary) for _ in range(SENTINELS)]

    def __enter__(self) -> SentinelGroup:
        """Sentinels that disagree from the beginning, as where the machine stood still then, are replaced once."""
        try:
            self._start(START_WITHIN_S)
        except AssertionError:
            self._make()
            self._start(READY_WITHIN_S)
        return self

    def _start(self, within_s: float) -> None:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.stop)
                stack.enter_context(node.relay)
                node.start()
            for sentinel in self.sentinels:
                stack.callback(sentinel.stop)
                sentinel.start()
            self.settle(within_s)
            self._ending = stack.pop_all()

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def url(self, query: str = "", place: int = 0) -> str:
        places = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{places}/{NAME}/{place}{query}"

    def primary(self) -> ReplicatedRedis:
        """What the first sentinel names."""
        with redis.Redis(port=self.sentinels[0].port, socket_timeout=1) as client:
            _, port = client.execute_command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return next(node for node in self.nodes if node.relay.port == int(port))

    def settle(self, within_s: float = READY_WITHIN_S) -> None:
        """Until every sentinel knows the others and both replicas, and these are in step with the primary."""
        try:
            for _ in _until("the group does not settle", within_s):
                with contextlib.suppress(redis.RedisError):
                    if all(self._knows_all(sentinel) for sentinel in self.sentinels) and self._is_in_step():
                        return
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self._seen()])) from None

    def _seen(self) -> Iterator[str]:
        """What each process says of the others."""
        for server in (*self.nodes, *self.sentinels):
            yield f"{type(server).__name__} {server.port}"
            try:
                with redis.Redis(port=server.port, socket_timeout=1) as client:
                    if isinstance(server, ReplicatedRedis):
                        yield f"  behind {server.relay.port}: {client.info('replication')}"
                    else:
                        yield f"  {client.sentinel_master(NAME)}"
                        yield from (f"  {each}" for each in client.sentinel_slaves(NAME))
            except redis.RedisError as error:
                yield f"  {error}"

    def _knows_all(self, sentinel: Sentinel) -> bool:
        with redis.Redis(port=sentinel.port, socket_timeout=1) as client:
            about = client.sentinel_master(NAME)
            replicas = client.sentinel_slaves(NAME)
        well = [each for each in replicas if each["flags"] == "slave" and each["master-link-status"] == "ok"]
        return about["num-other-sentinels"] == SENTINELS - 1 and about["flags"] == "master" and len(well) == REPLICAS

    def _is_in_step(self) -> bool:
        with redis.Redis(port=self.primary().port, socket_timeout=1) as client:
            return int(client.info("replication")["connected_slaves"]) == REPLICAS

    def failed_over(self, before: ReplicatedRedis) -> ReplicatedRedis:
        """The next primary, as soon as there is one."""
        for _ in _until("no replica was promoted"):
            with contextlib.suppress(redis.RedisError):
                now = self.primary()
                if now is not before and now.role() == "master":
                    return now
        raise AssertionError


def _until(why: str, within_s: float = READY_WITHIN_S) -> Iterator[None]:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        yield
        time.sleep(0.05)
    raise AssertionError(why)
