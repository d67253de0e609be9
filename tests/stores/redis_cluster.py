"""A Redis Cluster of three primaries with a replica each, started by the tests, to which nodes can be added."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import time
from itertools import count

import redis

from tests.stores.process import StoreMissing, free_port
from tests.stores.redis_server import INSTALL, RedisServer

NODE_TIMEOUT_MS = 1_500
PRIMARIES = 3
READY_WITHIN_S = 120.0
_prefixes = count()


class ClusterNode(RedisServer):
    def __init__(self, *options: str) -> None:
        super().__init__()
        self.bus_port = free_port()
        self.options = options

    def command(self) -> list[str]:
        program, *rest = super().command()
        own = [each for each in rest if each != "--databases"]
        own.remove(str(self.places))
        clustered = ["--cluster-enabled", "yes", "--cluster-node-timeout", str(NODE_TIMEOUT_MS)]
        return [program, *own, *clustered, "--cluster-port", str(self.bus_port), *self.options]

    @property
    def place(self) -> str:
        return f"127.0.0.1:{self.port}"

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, socket_timeout=2)

    def node_id(self) -> str:
        with self.client() as client:
            return str(client.execute_command("CLUSTER MYID").decode())

    def is_primary(self) -> bool:
        with self.client() as client:
            return bool(client.role()[0] == b"master")


class RedisCluster:
    """`options` are those of each node."""

    def __init__(self, *options: str) -> None:
        self.options = options
        self.nodes = [ClusterNode(*options) for _ in range(2 * PRIMARIES)]

    def __enter__(self) -> RedisCluster:
        with contextlib.ExitStack() as stack:
            for node in self.nodes:
                stack.callback(node.stop)
                node.start()
            self._cli("create", *[node.place for node in self.nodes], "--cluster-replicas", "1")
            self.settle()
            self._ending = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.close()

    def url(self, query: str = "") -> str:
        return f"redis+cluster://{','.join(node.place for node in self.nodes[:PRIMARIES])}/{query}"

    def fresh(self) -> str:
        """An empty place: a prefix that nobody used."""
        return self.url(f"?prefix=t{next(_prefixes)}&shard=1")

    def wipe(self, url: str) -> None:
        prefix = url.partition("prefix=")[2].partition("&")[0]
        for node in self.nodes:
            with node.client() as client:
                if client.role()[0] == b"master":
                    for key in client.scan_iter(f"{{{prefix}-*", count=1000):
                        client.delete(key)

    def add(self, replica_of: ClusterNode | None = None) -> ClusterNode:
        """A new primary, without a slot; or a replica."""
        options = [] if replica_of is None else ["--cluster-slave", "--cluster-master-id", replica_of.node_id()]
        node = ClusterNode(*self.options)
        self._ending.callback(node.stop)
        node.start()
        self._cli("add-node", node.place, self.nodes[0].place, *options)
        self.nodes.append(node)
        self.settle()
        return node

    def owner(self, slot: int) -> ClusterNode:
        """The primary that serves it, as the nodes that answer have it."""
        for node in self.nodes:
            with contextlib.suppress(redis.RedisError), node.client() as client:
                for first, last, primary, *_ in client.execute_command("CLUSTER SLOTS", NEVER_DECODE=True):
                    if first <= slot <= last:
                        return next(each for each in self.nodes if each.port == primary[1])
        raise AssertionError(f"nobody serves slot {slot}")

    def move(self, source: ClusterNode, target: ClusterNode, slots: int) -> None:
        """Reshard, as an operator does."""
        where = ("--cluster-from", source.node_id(), "--cluster-to", target.node_id())
        self._cli("reshard", self.nodes[0].place, *where, "--cluster-slots", str(slots), "--cluster-pipeline", "100")

    def settle(self) -> None:
        """Until all nodes that run agree on all slots, and every primary with slots has a replica that is in step."""
        deadline = time.monotonic() + READY_WITHIN_S
        while not all(self._is_well(node) for node in self.nodes if node.is_running):
            assert time.monotonic() < deadline, "the cluster does not settle"
            time.sleep(0.1)

    def _is_well(self, node: ClusterNode) -> bool:
        with contextlib.suppress(redis.RedisError), node.client() as client:
            about = client.execute_command("CLUSTER INFO")
            known = int(about["cluster_known_nodes"])
            replication = client.info("replication")
            in_step = replication["role"] == "master" or replication["master_link_status"] == "up"
            return about["cluster_state"] == "ok" and known == len(self.nodes) and in_step
        return False

    def _cli(self, command: str, *arguments: str) -> None:
        program = shutil.which("redis-cli")
        if program is None:
            raise StoreMissing(INSTALL)
        done = subprocess.run(
            [program, "--cluster", command, *arguments, "--cluster-yes"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
