"""The same inputs at a real server, `pinlater serve` over sockets, while a steady caller beside them is served.

Thrift comes framed, unframed, in pieces, cut and aborted, several calls at a time; HTTP as it is. A fault is a call
without its answer, an answer that is none, a traceback in the log, a process that ends, memory that grows, and a call
of the steady caller that fails.
"""

from __future__ import annotations

import socket
import struct
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any

from pinlater.model import Ack, DequeueRequest, Job, RequestContext
from pinlater.wire.codec import ApplicationError, decode_call, decode_reply, encode_call
from pinlater.wire.convert import call_args, dequeue_to_wire, enqueue_to_wire
from pinlater.wire.message import WireError
from tests.fuzz.faults import Fault
from tests.fuzz.loops import Tally
from tests.fuzz.messages import QUEUE, calls, changed_message
from tests.fuzz.requests import PASSWORD_LINE, changed_request, requests
from tests.fuzz.server_targets import check_answer, has_more_to_come
from tests.server.raw_thrift import framed
from tests.server.running import RunningServer, running

LIVE = "live"
ANSWERED_WITHIN_S = 60.0
MOST_GROWTH_KIB = 400 * 1024
LOOKED_AT_EVERY = 200
WAYS, LOGGED_WITHIN_S = 20, 1.0
"""An input of one's own is sent in as many ways, and what that brings about is in the log by then."""

STEADY = "steady"
BESIDE = ("127.0.0.2", 0)
"""The address of the steady caller, and no port in particular."""

RULES = f"""
[[rules]]
who = ["anonymous"]
from = ["127.0.0.1/32"]
may = ["enqueue", "consume", "read", "operate"]
queues = ["{QUEUE}*", "word*"]

[[rules]]
who = ["anonymous"]
from = ["{BESIDE[0]}/32"]
may = ["enqueue", "consume", "read", "operate", "admin"]
"""


class Broken(Exception):
    """What is wrong, as the name of a kind of fault."""


class _Line:
    """One framed connection with one call at a time. Broken: no answer, or an error."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), ANSWERED_WITHIN_S, source_address=BESIDE)
        self._seqid = 0

    def call(self, method: str, **arguments: Any) -> Any:
        self._seqid += 1
        message = encode_call(method, self._seqid, call_args(method, RequestContext(STEADY), **arguments))
        try:
            self._socket.sendall(framed(message))
            reply = decode_reply(_frame(self._socket))
        except (OSError, WireError) as error:
            raise Broken(f"a steady caller has no answer to {method}: {error!r}") from error
        if reply.seqid != self._seqid:
            raise Broken(f"a steady caller has the answer to another call: {reply}")
        if reply.exception is not None:
            raise Broken(f"a steady caller is refused: {reply.exception.message}")
        return reply.success

    def close(self) -> None:
        self._socket.close()


class SteadyCaller(threading.Thread):
    """Enqueues, claims and acks one job after the other, and must get all its answers. `rounds`: how often it did."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self._line = _Line(port)
        self._line.call("createQueue", name=STEADY)
        self._line.call("createQueue", name=QUEUE)
        self._ended = threading.Event()
        self.rounds = 0
        self.failure = ""

    def run(self) -> None:
        with closing(self._line):
            try:
                while not self._ended.wait(0.005):
                    self._round()
            except Broken as error:
                self.failure = str(error)

    def _round(self) -> None:
        stored = self._line.call("enqueueJobs", request=enqueue_to_wire(STEADY, [Job(b"steady")])).job_descriptors
        claimed = self._line.call("dequeueJobs", request=dequeue_to_wire(DequeueRequest(STEADY, 1, wait_ms=10_000)))
        if list(claimed.jobs) != stored:
            raise Broken(f"a steady caller has not claimed its job: {stored} and {claimed.jobs}")
        acks = [Ack(each) for each in stored]
        self._line.call("dequeueJobs", request=dequeue_to_wire(DequeueRequest(STEADY, 1, succeeded=acks)))
        if self.rounds % 20 == 0:
            self._line.call("createQueue", name=QUEUE)  # which some of the inputs remove
        self.rounds += 1

    def end(self) -> None:
        self._ended.set()
        self.join(2 * ANSWERED_WITHIN_S)


def _frame(sock: socket.socket) -> bytes:
    """One framed answer. ConnectionError: the connection ends before."""
    head = _exactly(sock, 4)
    return _exactly(sock, struct.unpack(">i", head)[0])


def _exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = sock.recv(min(65_536, size - len(data)))
        if not chunk:
            raise ConnectionError("the connection ended")
        data += chunk
    return data


def _plain_calls() -> Iterator[bytes]:
    """Without tokens and passwords: after some wrong ones all answers to this address are held back."""
    for data in calls():
        call = decode_call(data)
        context, request = call.args.context, getattr(call.args, "request", None)
        context.token = context.gateway_token = context.on_behalf_of = None
        if getattr(request, "password", None) is not None:
            request.password = None
        yield encode_call(call.name, call.seqid, call.args, call.protocol)


def _plain_requests() -> Iterator[bytes]:
    """Without the password, likewise."""
    return (each.replace(PASSWORD_LINE, b"") for each in requests() if not each.startswith(b"POST /login"))


class LiveRun:
    """One server and what is sent to it. `send` sends one input, and says what was wrong."""

    def __init__(self, server: RunningServer, seed: int) -> None:
        self._server = server
        self._dice = Random(seed)
        self._calls, self._requests = list(_plain_calls()), list(_plain_requests())
        self._thrift_port = server.port
        address = server.wait_for("api_ready")["address"]
        self._http_port = int(address.rstrip("/").rpartition(":")[2])
        self.steady = SteadyCaller(self._thrift_port)
        self._events_seen = len(server.events)
        self._first_kib = 0

    def next_input(self) -> tuple[str, bytes]:
        if self._dice.random() < 0.6:
            return "thrift", self._changed(self._calls, changed_message)
        return "http", self._changed(self._requests, changed_request)

    def _changed(self, seeds: list[bytes], change: Callable[[bytes, Random], bytes]) -> bytes:
        data = self._dice.choice(seeds)
        for _ in range(self._dice.choice((0, 1, 1, 1, 2, 4))):
            data = change(data, self._dice)
        return data[:65_536]

    def send(self, protocol: str, data: bytes) -> None:
        """Broken."""
        try:
            if protocol == "thrift":
                self._send_calls(data)
            else:
                self._send_request(data)
        except TimeoutError as error:
            raise Broken("a connection hangs") from error
        except ConnectionError:
            return  # closed, as it may be; a server that is not there is seen by the steady caller

    def _connected(self, port: int) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", port), ANSWERED_WITHIN_S)
        made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # no port waits behind it
        return made

    def _send_calls(self, data: bytes) -> None:
        dice = self._dice
        with closing(self._connected(self._thrift_port)) as sock:
            way = dice.randrange(10)
            if way == 0:  # as it is: a stream, whose end the server sees
                sock.sendall(data)
                sock.shutdown(socket.SHUT_WR)
                while sock.recv(65_536):
                    pass
                return
            number = dice.choice((1, 1, 1, 4, 40)) if data else 0
            whole = framed(data) * number
            if way == 1:  # gone in the middle of it
                sock.sendall(whole[: dice.randrange(len(whole) + 1)])
                return
            size = dice.choice((1, 3, 100)) if way == 2 and len(whole) < 2_000 else len(whole) or 1
            for at in range(0, len(whole), size):
                sock.sendall(whole[at : at + size])
            for _ in range(number):
                answer = _frame(sock)
                try:
                    decode_reply(answer)
                except ApplicationError:
                    continue
                except WireError as error:
                    raise Broken(f"an answer that is none: {error}") from error

    def _send_request(self, data: bytes) -> None:
        with closing(self._connected(self._http_port)) as sock:
            sock.sendall(data)
            if has_more_to_come(data):
                sock.shutdown(socket.SHUT_WR)
            got = b""
            while b"\r\n\r\n" not in got:
                chunk = sock.recv(65_536)
                if not chunk:
                    return
                got += chunk
            head, _, body = got.partition(b"\r\n\r\n")
            if b"text/event-stream" in head or data.startswith(b"HEAD"):
                return
            length = next(
                (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
            )
            while len(body) < length:
                chunk = sock.recv(65_536)
                if not chunk:
                    break
                body += chunk
            check_answer(data, head, body)

    def look(self) -> None:
        """At the server itself. Broken."""
        if self._server.process.poll() is not None:
            raise Broken("the server ended")
        if self.steady.failure:
            raise Broken(self.steady.failure)
        events = self._server.events[self._events_seen :]
        self._events_seen += len(events)
        for event in events:
            if "exception" in event or event["event"] in ("text", "child_died", "call_failed"):
                raise Broken(f"the log has {event.get('text') or event['event']}: {event}")
        grown = self._memory_kib() - self._first_kib
        if not self._first_kib:
            self._first_kib = grown
        elif grown > MOST_GROWTH_KIB:
            raise Broken(f"the processes have grown by {grown:,} KiB")

    def _memory_kib(self) -> int:
        """Of all its processes."""
        found, waiting = 0, [self._server.process.pid]
        while waiting:
            pid = waiting.pop()
            try:
                status = Path(f"/proc/{pid}/status").read_text()
                waiting += map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())
            except OSError:
                continue
            found += int(status.partition("VmRSS:")[2].split()[0])
        return found


@contextmanager
def _served(seed: int) -> Iterator[tuple[RunningServer, LiveRun]]:
    """A server, with its steady caller at work."""
    with tempfile.TemporaryDirectory(prefix="pinlater-fuzz-") as folder:
        rules = Path(folder) / "rules.toml"
        rules.write_text(RULES, encoding="utf-8")
        settings = ["--max-wait", "20ms", "--rules", str(rules), "--processes", "1"]
        with running(Path(folder), "--api", "127.0.0.1:0", "--http", "127.0.0.1:0", *settings) as server:
            run = LiveRun(server, seed)
            run.steady.start()
            try:
                yield server, run
            finally:
                run.steady.end()


def run_live(
    seed: int, told: Callable[[Tally], object] = lambda tally: None, *, seconds: float = 0, executions: int = 0
) -> Tally:
    """So many seconds or inputs."""
    tally = Tally(LIVE)
    began_s = time.monotonic()
    with _served(seed) as (server, run):
        recent: list[tuple[str, bytes]] = []
        while not (0 < executions <= tally.executions or 0 < seconds <= time.monotonic() - began_s):
            protocol, data = run.next_input()
            recent = [*recent[-LOOKED_AT_EVERY:], (protocol, data)]
            tally.executions += 1
            try:
                run.send(protocol, data)
                if tally.executions % LOOKED_AT_EVERY == 0:
                    run.look()
                    tally.seconds = time.monotonic() - began_s
                    tally.per_second = round(tally.executions / tally.seconds)
                    told(tally)
            except Exception as error:
                _note(tally, str(error), _culprit(run, recent))
                if server.process.poll() is not None or run.steady.failure:
                    break
        run.steady.end()
        try:
            run.look()
            if not run.steady.rounds:
                raise Broken("the steady caller was never served")
        except Broken as error:
            _note(tally, str(error), _culprit(run, recent))
    tally.seconds = time.monotonic() - began_s
    tally.per_second = round(tally.executions / max(tally.seconds, 0.001))
    return tally


def replay_live(data: bytes) -> Fault | None:
    """What one input brings about at a server of its own, in each protocol and each way of sending it."""
    with _served(seed=1) as (_, run):
        try:
            for protocol in ("thrift", "http") * WAYS:
                run.send(protocol, data)
            time.sleep(LOGGED_WITHIN_S)
            run.look()
        except Broken as error:
            return Fault(LIVE, str(error).partition(":")[0], str(error), data)
    return None


def _note(tally: Tally, text: str, data: bytes) -> None:
    kind = text.partition(":")[0]
    if kind not in {each.kind for each in tally.faults}:
        tally.faults.append(Fault(LIVE, kind, text, data))


def _culprit(run: LiveRun, recent: list[tuple[str, bytes]]) -> bytes:
    """The input that brings it about again by itself, or else the last one."""
    for protocol, data in reversed(recent):
        try:
            run.send(protocol, data)
            time.sleep(0.01)
            run.look()
        except Exception:  # whatever it is this time
            return data
    return recent[-1][1] if recent else b""
