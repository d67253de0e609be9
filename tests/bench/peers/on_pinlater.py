"""The jobs on PinLater: a type of job for each queue, in threads."""

from __future__ import annotations

from pinlater_workers import App
from tests.bench.peers.record import BROKER, QUEUES, write_begun

app = App(servers=[BROKER])


def _job_type(queue: str):
    def noop(sent_ns: int) -> None:
        write_begun(queue, sent_ns)

    return app.job(queue=queue, name=f"noop_{queue}")(noop)


JOB_TYPES = {queue: _job_type(queue) for queue in QUEUES}


def send(queue: str, sent_ns: list[int]) -> None:
    JOB_TYPES[queue].enqueue_many([(each,) for each in sent_ns])
