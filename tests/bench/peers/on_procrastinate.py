"""The jobs on procrastinate: a task for each queue."""

from __future__ import annotations

from procrastinate import App, PsycopgConnector, SyncPsycopgConnector

from tests.bench.peers.record import BROKER, QUEUES, write_begun

app = App(connector=PsycopgConnector(conninfo=BROKER))


def _task(queue: str):
    async def noop(sent_ns: int) -> None:
        write_begun(queue, sent_ns)

    return app.task(queue=queue, name=f"noop_{queue}")(noop)


TASKS = {queue: _task(queue) for queue in QUEUES}


def send(queue: str, sent_ns: list[int]) -> None:
    with app.replace_connector(_producer()):
        TASKS[queue].batch_defer(*[{"sent_ns": each} for each in sent_ns])


def _producer() -> SyncPsycopgConnector:
    if not _opened:
        _opened.append(SyncPsycopgConnector(conninfo=BROKER))
        _opened[0].open()
    return _opened[0]


_opened: list[SyncPsycopgConnector] = []
