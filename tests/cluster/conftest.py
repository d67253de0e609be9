"""A cluster for tests of commands: two servers of two processes over two Redis shards, one of which can be killed.

cluster     started once per module; its password is PASSWORD
command     runs `pinlater ...` in this process, against that cluster
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pinlater import Client
from pinlater.cli import main
from pinlater.data_folder.password import hash_password
from tests.server.running import RunningServer, running
from tests.stores.places import start_server
from tests.stores.process import StoreServer

PASSWORD = "secret"
WITHIN_S = 100.0
SETTINGS = (
    *("--processes", "2", "--health-pause", "1s", "--lease", "2s", "--stats-interval", "500ms"),
    *("--maintenance-interval", "200ms", "--admin-password-hash", hash_password(PASSWORD)),
)


def eventually(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WITHIN_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come to pass"
        time.sleep(0.05)


@dataclass
class TwoServers:
    """`stores[0]` is shard 1, `stores[1]` shard 2; both keep what they answered when they are killed."""

    stores: list[StoreServer]
    servers: list[RunningServer]
    addresses: list[str]

    def client(self) -> Client:
        return Client(servers=self.addresses, timeout=8.0)

    def seen_out(self) -> list[list[str]]:
        """The shards that each process has out."""
        with self.client() as client:
            return [server.shards_out for server in client.cluster_status(queues=[]).servers]

    def kill_shard_2(self) -> None:
        """Returns when every process knows."""
        self.stores[1].kill()
        eventually(lambda: self.seen_out() == [["2"]] * 4)

    def revive_shard_2(self) -> None:
        """Returns when every process uses it again."""
        self.stores[1].start()
        eventually(lambda: self.seen_out() == [[]] * 4)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TwoServers]:
    with contextlib.ExitStack() as stack:
        stores: list[StoreServer] = []
        for _ in range(2):
            stores.append(start_server("redis", durable=True))
            stack.callback(stores[-1].stop)
        shards = [word for number, store in enumerate(stores, 1) for word in ("--store", f"{number}={store.url()}")]
        folders = [tmp_path_factory.mktemp(name) for name in "ab"]
        servers = [stack.enter_context(running(folder, *shards, *SETTINGS)) for folder in folders]
        found = TwoServers(stores, servers, [f"127.0.0.1:{server.port}" for server in servers])
        eventually(lambda: found.seen_out() == [[]] * 4)
        yield found


class Command:
    """`pinlater ARGUMENTS` in an empty folder, which must end with `code`; None: that is to be seen."""

    def __init__(self, cluster: TwoServers, folder: Path) -> None:
        self._folder = folder
        self.environment = {
            "PINLATER_SERVER": ",".join(cluster.addresses),
            "PINLATER_ADMIN_PASSWORD": PASSWORD,
            "COLUMNS": "120",
        }

    def __call__(self, *arguments: str, code: int | None = 0, stdin: str = "", **variables: str | None) -> Result:
        with contextlib.chdir(self._folder):  # in a checkout whose server was tried there is an admin password
            result = CliRunner().invoke(main, arguments, input=stdin, env={**self.environment, **variables})
        assert code in (None, result.exit_code), (result.output, result.exception)
        return result


@pytest.fixture(scope="module")
def command(cluster: TwoServers, tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(cluster, tmp_path_factory.mktemp("operator"))
