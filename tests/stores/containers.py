"""Stores in containers: the second way, where the program is missing and a Docker engine answers."""

from __future__ import annotations

import contextlib
import time

import docker
from docker.errors import DockerException
from testcontainers.core.container import DockerContainer

from tests.stores.process import READY_WITHIN_S, StoreServer

IMAGES = {
    "redis": ("redis:7", 6379),
    "mysql": ("mariadb:10.11", 3306),
    "postgres": ("postgres:15", 5432),
    "dynamodb": ("amazon/dynamodb-local:2.6.1", 8000),
}
VARIABLES = {
    "mysql": {"MARIADB_ALLOW_EMPTY_ROOT_PASSWORD": "1"},
    "postgres": {"POSTGRES_HOST_AUTH_METHOD": "trust"},
}
ARGUMENTS = {
    ("redis", False): ["redis-server", "--save", "", "--databases", "16"],
    ("redis", True): ["redis-server", "--databases", "16", "--appendonly", "yes", "--appendfsync", "always"],
    ("mysql", False): ["--innodb-flush-log-at-trx-commit=0", "--max-connections=500"],
    ("postgres", False): ["postgres", "-c", "fsync=off"],
    ("dynamodb", False): ["-jar", "DynamoDBLocal.jar", "-inMemory", "-sharedDb", "-disableTelemetry"],
    ("mysql", True): ["--innodb-flush-log-at-trx-commit=1", "--max-connections=500"],
}


def docker_answers() -> bool:
    """Whether a Docker engine can be reached."""
    with contextlib.suppress(DockerException):
        client = docker.from_env(timeout=5)
        with contextlib.closing(client):
            return bool(client.ping())
    return False


class ContainerServer(StoreServer):
    """The same store as `plain`, addressed alike, in a container that keeps its data through kill and start."""

    def __init__(self, plain: StoreServer) -> None:
        self.name = plain.name
        self._plain = plain
        self._container: DockerContainer | None = None
        super().__init__(durable=plain.durable)
        self.port = plain.port

    def command(self) -> list[str]:
        return ARGUMENTS[self.name, self.durable]

    def url(self, place: int = 0) -> str:
        return self._plain.url(place)

    def answers(self) -> bool:
        return self._plain.answers()

    def empty(self, place: int) -> None:
        self._plain.empty(place)

    def start(self) -> None:
        if self._container is None:
            image, port = IMAGES[self.name]
            container = DockerContainer(image).with_bind_ports(port, self.port).with_command(self.command())
            for name, value in VARIABLES.get(self.name, {}).items():
                container = container.with_env(name, value)
            self._container = container.start()
        else:
            self._container.get_wrapped_container().start()
        deadline = time.monotonic() + READY_WITHIN_S
        while not self.answers():
            if time.monotonic() > deadline:
                self.stop()
                raise RuntimeError(f"{self.name} did not answer in its container")
            time.sleep(0.1)

    def kill(self) -> None:
        self._running().get_wrapped_container().kill()

    def terminate(self) -> None:
        self._running().get_wrapped_container().stop()

    def pause(self) -> None:
        self._running().get_wrapped_container().pause()

    def resume(self) -> None:
        self._running().get_wrapped_container().unpause()

    def stop(self) -> None:
        if self._container is not None:
            self._container.stop()
        super().stop()
        self._plain.stop()

    def _running(self) -> DockerContainer:
        assert self._container is not None, f"{self.name} does not run"
        return self._container
