"""The sender of the table, and what the server answered."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

from pinlater import Client
from pinlater.errors import PinLaterError
from pinlater.model import Ack, DequeueRequest, RequestContext
from pinlater.model import Job as NewJob
from pinlater.model.flow_words import NewFlow, NewItem, Stage
from pinlater.wire.codec import ApplicationError, Reply, decode_reply, encode_call
from pinlater.wire.convert import call_args, dequeue_to_wire, enqueue_to_wire
from pinlater.wire.faults import error_from_exception
from tests.extremes.calls import ExtremeCall, Job, Stock, extreme_calls
from tests.http.calls import PASSWORD
from tests.server.running import RunningServer

WITHIN_S = 120.0
RUNNING = 1_000
"""Jobs in progress that the rows may use up."""

WAITING = 100
LATER_MS = 4_000_000_000_000

STAYS, HELD, SCRAP, STEPS, BESIDE, SET = "extremes", "held", "scrap", "steps", "beside", "set"
ME = RequestContext("beside")


class Line:
    """One connection; several calls may be under way on it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), WITHIN_S)
        self._file = self._socket.makefile("rb")
        self._seqid = 0

    def send(self, method: str, args: Any) -> None:
        self._seqid += 1
        message = encode_call(method, self._seqid, args)
        self._socket.sendall(struct.pack("!I", len(message)) + message)

    def answer(self) -> Reply:
        (size,) = struct.unpack("!I", self._file.read(4))
        return decode_reply(self._file.read(size))

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Neighbour:
    """Another caller with ordinary calls; every one of them must be carried out."""

    def __init__(self, port: int) -> None:
        self._line = Line(port)
        self._turn = 0
        self._held: list[str] = []
        self.failures: list[str] = []

    def send(self, beside: ExtremeCall) -> None:
        if beside.method == "enqueueJobs":  # into the same queue, so that the two may be joined
            self._send("enqueueJobs", enqueue_to_wire(STAYS, [NewJob(b"beside")]))
            return
        self._turn += 1
        if self._turn % 2:
            self._send("enqueueJobs", enqueue_to_wire(BESIDE, [NewJob(b"beside")]))
        else:
            acks = [Ack(each) for each in self._held]
            self._send("dequeueJobs", dequeue_to_wire(DequeueRequest(BESIDE, 1, succeeded=acks)))

    def _send(self, method: str, request: Any) -> None:
        self._line.send(method, call_args(method, ME, request=request))

    def answer(self, beside: ExtremeCall) -> None:
        try:
            reply = self._line.answer()
        except (ApplicationError, OSError) as error:
            self.failures.append(f"beside {beside}: {error!r}")
            return
        if reply.exception is not None:
            self.failures.append(f"beside {beside}: {reply.name}: {reply.exception.message}")
        elif reply.name == "dequeueJobs":
            self._held = list(reply.success.jobs or {})
            if not self._held:
                self.failures.append(f"beside {beside}: no job was handed out")

    def close(self) -> None:
        self._line.close()


@dataclass
class Sent:
    """A server to which the table was sent. `refused`: the calls that it did not carry out."""

    store: str
    server: RunningServer
    client: Client
    stock: Stock
    descriptors: list[str] = field(default_factory=list)
    """The jobs that stay."""

    refused: list[tuple[ExtremeCall, PinLaterError]] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """Calls that had no answer of the interface, and the neighbour's that failed."""

    carried_out: int = 0
    shown: dict[str, list[str]] = field(default_factory=dict)
    """The names of what is there, by what it is."""

    def send(self, line: Line, call: ExtremeCall, neighbour: Neighbour | None = None) -> None:
        line.send(call.method, call.arguments(self.stock))
        if neighbour is not None:
            neighbour.send(call)
        try:
            reply = line.answer()
        except ApplicationError as error:
            self.broken.append(f"{call}: {error}")
        else:
            if reply.exception is None:
                self.carried_out += 1
                if call.method == "enqueueJobs":
                    self.descriptors += reply.success.job_descriptors
            else:
                self.refused.append((call, error_from_exception(reply.exception)))
        if neighbour is not None:
            neighbour.answer(call)


@contextmanager
def sent_to(store: str, server: RunningServer) -> Iterator[Sent]:
    with (
        Client(f"127.0.0.1:{server.port}", timeout=WITHIN_S) as client,
        closing(Line(server.port)) as line,
        closing(Neighbour(server.port)) as neighbour,
    ):
        sent = Sent(store, server, client, _stock(client))
        for call in extreme_calls():
            sent.send(line, call, neighbour)
        sent.broken += neighbour.failures
        sent.shown = _names_of(client, sent)
        yield sent


def _stock(client: Client) -> Stock:
    for queue in (STAYS, HELD, SCRAP, STEPS, BESIDE, SET):
        client.create_queue(queue)
    running: list[Job] = []
    while len(running) < RUNNING:
        client.enqueue(HELD, [NewJob(b"running")] * 250)
        taken = client.dequeue(DequeueRequest(HELD, 250, claim_timeout_ms=86_400_000))
        running += [Job(each.descriptor, each.claim_descriptor) for each in taken]
    later = NewJob(b"later", run_after_ms=LATER_MS)
    waiting = client.enqueue(HELD, [later] * WAITING)
    client.enqueue(SCRAP, [NewJob(b"scrap")] * 250)
    made = client.create_flow(NewFlow("stock", [Stage("first", "", STEPS)], items={"first": [NewItem(b"[1]")]}))
    (item,) = client.get_flow_items(made.id).items
    return Stock(STAYS, HELD, SCRAP, STEPS, PASSWORD, made.id, "first", item.number, running, waiting, SET)


def _names_of(client: Client, sent: Sent) -> dict[str, list[str]]:
    schedules = [each.schedule.name for each in client.get_schedules(limit=1_000).schedules]
    flows = [each.id for each in client.get_flows(limit=1_000).flows]
    return {
        "queue": [STAYS, HELD, SET],
        "target": [SET],
        "descriptor": sent.descriptors,
        "flow": flows,
        "schedule": schedules,
        "name": schedules,
        "item": [str(sent.stock.number)],
        "what": ["payload"],
        "group": ["acme"],
    }
