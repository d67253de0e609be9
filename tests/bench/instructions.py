"""Instructions per job of the hot paths, counted by valgrind's callgrind: `scripts/bench instructions --help`.

For before and after a change: unlike seconds, counts are the same on a busy machine, within about one per cent. Those
of the server are of one server process on Redis, whose calls come from plain connections; those of the client are of
an AsyncClient, where no other is named. Code of Python, its C libraries and the event loop counts; the kernel and the
store do not.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
from collections.abc import Callable, Iterator

from pinlater.model import Ack, DequeuedJob, ExtendedJob, Job
from pinlater.shards.keys.homes_record import SLOTS
from tests.bench import frames
from tests.bench.callgrind import Counted, counted
from tests.bench.processes import served
from tests.stores.places import start_server
from tests.stores.process import StoreServer

QUEUE = "bench"
BATCH = 100
CONNECTIONS = 64
CALLS = 200
"""Single calls, and jobs in batches are ten times as many."""

Counts = dict[str, float]


class Server:
    """The server under valgrind, and what is asked of it."""

    def __init__(self, process: Counted, callers: list[frames.Caller]) -> None:
        self._process = process
        self._callers = callers
        self._body = os.urandom(200)
        self._jobs: list[DequeuedJob] = []
        self._keys = itertools.count()

    def single(self) -> Iterator[tuple[str, float]]:
        """Of calls with a job each, or none."""
        for _ in range(CALLS * 3 // BATCH):
            self._callers[0].call(frames.enqueue(1, QUEUE, self._new(BATCH)))
        for what, one, at_a_time in (
            ("empty call", lambda: frames.enqueue(1, QUEUE, []), 1),
            (f"empty call, {CONNECTIONS} at a time", lambda: frames.enqueue(1, QUEUE, []), CONNECTIONS),
            ("single enqueue", lambda: frames.enqueue(1, QUEUE, self._new(1)), 1),
            (f"single enqueue, {CONNECTIONS} at a time", lambda: frames.enqueue(1, QUEUE, self._new(1)), CONNECTIONS),
            ("single dequeue, ack riding", self._dequeue_one, 1),
            (f"single dequeue, ack riding, {CONNECTIONS} at a time", self._dequeue_one, CONNECTIONS),
        ):
            yield what, self._per_call(one, at_a_time, CALLS)
        self._drain()

    def batches(self) -> Iterator[tuple[str, float]]:
        for what, one in (
            ("enqueue", lambda: frames.enqueue(1, QUEUE, self._new(BATCH))),
            ("dequeue", lambda: frames.dequeue(1, QUEUE, BATCH)),
            ("ack", lambda: frames.ack(1, QUEUE, [Ack(self._jobs.pop().descriptor) for _ in range(BATCH)])),
        ):
            yield f"{what}, per job of {BATCH}", self._per_call(one, 1, CALLS // 10) / BATCH

    def keyed(self) -> Iterator[tuple[str, float]]:
        """Of jobs that each have a key of their own. The home of a slot is worked out once, before anything counts."""
        for _ in range(SLOTS * 3 // BATCH):
            keyed = [ExtendedJob(self._body, dedupe_key=self._key()) for _ in range(BATCH)]
            self._callers[0].call(frames.enqueue(1, QUEUE, keyed))
        self._drain()
        for what, make in (
            ("a dedupe key", lambda key: ExtendedJob(self._body, attempts_allowed=5, dedupe_key=key)),
            ("both keys", lambda key: ExtendedJob(self._body, attempts_allowed=5, dedupe_key=key, serialize_key=key)),
        ):
            for step, one in (
                ("enqueue", lambda make=make: frames.enqueue(1, QUEUE, [make(self._key()) for _ in range(BATCH)])),
                ("dequeue", lambda: frames.dequeue(1, QUEUE, BATCH)),
                ("ack", lambda: frames.ack(1, QUEUE, [Ack(self._jobs.pop().descriptor) for _ in range(BATCH)])),
            ):
                yield f"{step} with {what}, per job of {BATCH}", self._per_call(one, 1, CALLS // 10) / BATCH

    def _key(self) -> str:
        return f"account-{next(self._keys):08}"

    def _new(self, count: int) -> list[Job]:
        return [Job(self._body, attempts_allowed=5) for _ in range(count)]

    def _dequeue_one(self) -> bytes:
        return frames.dequeue(1, QUEUE, 1, [Ack(self._jobs.pop().descriptor)] if self._jobs else [])

    def _per_call(self, call: Callable[[], bytes], at_a_time: int, calls: int) -> float:
        rounds = max(1, calls // at_a_time)
        self._rounds(call, at_a_time, max(1, rounds // 4))  # until everything is imported, compiled and cached
        with self._process.counting():
            self._rounds(call, at_a_time, rounds)
        return self._process.taken() / (rounds * at_a_time)

    def _rounds(self, call: Callable[[], bytes], at_a_time: int, rounds: int) -> None:
        for _ in range(rounds):
            sending = self._callers[:at_a_time]
            for caller in sending:
                caller.send(call())
            for caller in sending:
                self._look_at(caller.answer())

    def _look_at(self, answer: bytes) -> None:
        if b"dequeueJobs" in answer[:20]:
            self._jobs += frames.jobs_of(answer)
        elif b"enqueueJobs" in answer[:20]:
            frames.check("enqueueJobs", 1, answer)

    def _drain(self) -> None:
        """Leave nothing of the single calls behind."""
        while True:
            acks = [Ack(job.descriptor) for job in self._jobs]
            self._jobs = frames.jobs_of(self._callers[0].call(frames.dequeue(1, QUEUE, BATCH, acks)))
            if not self._jobs:
                return


@contextlib.contextmanager
def server_on(*urls: str) -> Iterator[Server]:
    """A server under valgrind, with a queue and connections."""
    with counted("-m", "tests.bench.alone", *urls) as process, contextlib.ExitStack() as open_ones:
        port = int(process.said())
        callers = [open_ones.enter_context(contextlib.closing(frames.Caller(port))) for _ in range(CONNECTIONS)]
        callers[0].call(frames.create_queue(1, QUEUE))
        yield Server(process, callers)


def of_the_server(store: StoreServer) -> Iterator[tuple[str, float]]:
    store.empty(0)
    with server_on(store.url(0)) as server:
        yield from server.single()
        yield from server.batches()


def of_keyed_jobs(store: StoreServer) -> Iterator[tuple[str, float]]:
    store.empty(0)
    with server_on(store.url(0)) as server:
        yield from server.batches()
        yield from server.keyed()


def of_two_shards(store: StoreServer) -> Iterator[tuple[str, float]]:
    """In one Redis, which makes no difference to the server."""
    store.empty(0)
    store.empty(1)
    with server_on(store.url(0), store.url(1)) as server:
        yield from server.batches()


def of_the_client(store: StoreServer) -> Iterator[tuple[str, float]]:
    store.empty(1)
    with served([store.url(1)], 1) as server, counted("-m", "tests.bench.scripted_client", server.address) as process:
        process.said()
        for what, asked, calls, jobs in (
            ("single enqueue", "single", CALLS, 1),
            ("single enqueue, 50 at a time", "singles", CALLS * 5, 1),
            ("single enqueue of Client", "blocking", CALLS, 1),
            (f"enqueue, per job of {BATCH}", "enqueue", CALLS // 10, BATCH),
            (f"enqueue of Client, per job of {BATCH}", "blocking list", CALLS // 10, BATCH),
            (f"enqueue_many of the framework, per job of {BATCH}", "framework", CALLS // 10, BATCH),
            (f"dequeue, per job of {BATCH}", "dequeue", CALLS // 10, BATCH),
            (f"ack, per job of {BATCH}", "ack", CALLS // 10, BATCH),
        ):
            _ask(process, asked, max(calls // 4, 1))
            with process.counting():
                _ask(process, asked, calls)
            yield what, process.taken() / (calls * jobs)


def _ask(process: Counted, what: str, times: int) -> None:
    process.tell(f"{what} {times}")
    process.said()


PARTS: dict[str, Callable[[StoreServer], Iterator[tuple[str, float]]]] = {
    "server": of_the_server,
    "two-shards": of_two_shards,
    "keyed": of_keyed_jobs,
    "client": of_the_client,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="scripts/bench instructions",
        description=__doc__,
        epilog="examples:\n  scripts/bench instructions\n  scripts/bench instructions server --json before.json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="*", metavar="PART", help=f"only these of {', '.join(PARTS)}")
    parser.add_argument("--json", metavar="FILE", help="write the counts there too")
    options = parser.parse_args()
    unknown = [part for part in options.part if part not in PARTS]
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are: {', '.join(PARTS)}")
    counts: Counts = {}
    store = start_server("redis")
    try:
        for part in options.part or PARTS:
            for what, instructions in PARTS[part](store):
                counts[f"{part}: {what}"] = round(instructions)
                print(f"{part + ': ' + what:52} {instructions:12,.0f}", flush=True)
    finally:
        store.stop()
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(counts, file, indent=2)


if __name__ == "__main__":
    main()
