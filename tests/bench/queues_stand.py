"""A server with many queues, and workers of the framework whose jobs note when they begin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pinlater.data_folder.password import hash_password
from pinlater_workers import App
from tests.bench.noting_worker import make_app, queue_names
from tests.bench.processes import Program, Server, served
from tests.stores.process import StoreServer

PASSWORD = "for the benchmark"
WITH_PASSWORD = ("--admin-password-hash", hash_password(PASSWORD))
"""Options of a server that lets this password change settings."""


class QueuesStand:
    """The queues are there; they are named here by their numbers."""

    def __init__(self, server: Server, app: App, queues: int) -> None:
        self._server = server
        self._app = app
        self._queues = queue_names(queues)
        for queue in self._queues:
            app.client.create_queue(queue)

    @property
    def pids(self) -> Mapping[str, int]:
        """Of the server."""
        return self._server.pids()

    def enqueue(self, queue: int, due_s: float, jobs: int = 1) -> None:
        """Jobs that note when they begin, and were due at that time of time.time."""
        self._app.job_types[self._queues[queue]].enqueue_many([(due_s,)] * jobs)

    def limit(self, queue: int, per_second: float) -> None:
        settings = {"max_jobs_per_second": f"{per_second:g}"}
        self._app.client.update_queue(self._queues[queue], PASSWORD, set=settings)

    def worker(self, slots: int) -> Program:
        """One for all queues; it is ready."""
        return Program("noting_worker", server=self._server.address, queues=len(self._queues), slots=slots)


@contextmanager
def queues_stand(store: StoreServer, queues: int) -> Iterator[QueuesStand]:
    store.empty(0)
    with served([store.url(0)], 1, options=WITH_PASSWORD) as server:
        app = make_app(server.address, queues, [])
        try:
            yield QueuesStand(server, app, queues)
        finally:
            app.close()
