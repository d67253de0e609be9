"""The jobs on Celery: a task for each queue, without results."""

from __future__ import annotations

from celery import Celery

from tests.bench.peers.record import BROKER, QUEUES, RATES, write_begun

app = Celery("bench", broker=BROKER)
app.conf.broker_connection_retry_on_startup = True


def _task(queue: str):
    @app.task(name=f"noop_{queue}", ignore_result=True, rate_limit=f"{RATES[queue]}/s" if queue in RATES else None)
    def noop(sent_ns: int) -> None:
        write_begun(queue, sent_ns)

    return noop


TASKS = {queue: _task(queue) for queue in QUEUES}


def send(queue: str, sent_ns: list[int]) -> None:
    for each in sent_ns:
        TASKS[queue].apply_async((each,), queue=queue)
