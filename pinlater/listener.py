"""Listening sockets that hold out: few descriptors, time-outs, and a line a minute in the log for each kind of problem.

asyncio writes a traceback for every connection that it cannot accept, thousands a second, and bounds nothing.
"""

from __future__ import annotations

import asyncio
import errno
import importlib
import math
import socket
import ssl
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import Any, cast

from pinlater.forks import stays_with_parent

BACKLOG = 1024
_AT_ONCE = 16
_PAUSE_S = 0.02
_FULL_PAUSE_S = 0.5
_NONE_THERE = (BlockingIOError, InterruptedError, ConnectionAbortedError)

HEAD_WITHIN_S = 10.0
"""A request is whole so long after its first byte, and the first one so long after its connection."""

ANSWER_WITHIN_S = 30.0
IDLE_S = 75.0
"""An answer is taken, and the next request begun, within so long."""

SWEEP_S = 1.0
_KEEPALIVE = (
    ("TCP_KEEPIDLE", 1),  # seconds until the first question
    ("TCP_KEEPINTVL", 1),  # and between them
    ("TCP_KEEPCNT", 2),
    ("TCP_USER_TIMEOUT", 3_000),  # ms: the same where something that was sent is not acknowledged
)
_A_MINUTE_S = 60.0


class RateLimitedLog:
    """The first of each kind of trouble is written at once, others once a minute, with how many were left out."""

    def __init__(self, write: Callable[..., object], clock: Callable[[], float] = time.monotonic) -> None:
        """`write` gets the event and its fields, and `left_out` where there were more."""
        self._write = write
        self._clock = clock
        self._kinds: dict[str, tuple[float, int]] = {}

    def note(self, event: str, kind: str = "", /, **fields: object) -> None:
        """`kind` tells troubles of one event apart; there must be few."""
        now, key = self._clock(), f"{event} {kind}"
        since, left_out = self._kinds.get(key, (now - _A_MINUTE_S, 0))
        if now - since < _A_MINUTE_S:
            self._kinds[key] = (since, left_out + 1)
            return
        self._kinds[key] = (now, 0)
        if left_out:
            fields["left_out"] = left_out
        self._write(event, **fields)

    def say_rest(self) -> None:
        """Write what was left out and has not been counted in a line since."""
        for key, (since, left_out) in self._kinds.items():
            if left_out:
                self._write("lines_left_out", of=key.strip(), lines=left_out)
                self._kinds[key] = (since, 0)


def peer_text(peer: object) -> str:
    """HOST:PORT of an address as sockets have it; "unknown" where the caller was gone before it could be asked."""
    if not isinstance(peer, tuple):
        return str(peer or "unknown")
    host, port = peer[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def keep_alive(sock: Any) -> None:
    """From now on the connection ends with ETIMEDOUT about three seconds after the other machine is gone: where its
    power fails or its cable is cut, no end of the connection comes. The kernel asks the other side's, not the process,
    so a busy or a stopped caller is not taken for a dead one. Nothing on a system that cannot do that.
    """
    if sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE:
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


_ALL = 2**31


def raise_descriptor_limit(needed: int = _ALL) -> int:
    """So many descriptors, as far as the system lets this user have them; how many there are now."""
    try:
        resource = importlib.import_module("resource")
    except ModuleNotFoundError:  # Windows has no such limit
        return _ALL
    files = resource.RLIMIT_NOFILE
    soft, hard = (_ALL if each == resource.RLIM_INFINITY else each for each in resource.getrlimit(files))
    wanted = min(needed, hard)
    if wanted > soft:
        try:
            resource.setrlimit(files, (wanted, resource.getrlimit(files)[1]))
        except (OSError, ValueError):  # a system that has no more after all
            return soft
    return max(soft, wanted)


def listening(host: str, port: int) -> list[socket.socket]:
    """A socket for each address of the host ("": all of this machine), all with one port. OSError."""
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    try:
        for family, kind, protocol, _, address in dict.fromkeys(found):
            try:
                listener = socket.socket(family, kind, protocol)
            except OSError:
                continue  # this machine has no IPv6
            listeners.append(listener)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            listener.bind((address[0], port, *address[2:]))
            listener.listen(BACKLOG)
            listener.setblocking(False)
            port = listener.getsockname()[1]
    except BaseException:
        for listener in listeners:
            listener.close()
        raise
    if not listeners:
        raise OSError(errno.EAFNOSUPPORT, "no address of this host can be listened on")
    return listeners


class AcceptLoop:
    """Accepts from a listening socket, which it owns from now on, while `wanted`; `give` takes each connection.

    Where there are no descriptors left it rests a while and says so: those who connect wait.
    """

    def __init__(
        self,
        listener: socket.socket,
        give: Callable[[socket.socket], None],
        log: RateLimitedLog,
        wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        self.listener = listener
        self._give = give
        self._log = log
        self._wanted = wanted
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        stays_with_parent(listener)
        self._loop.add_reader(listener, self._accept)

    def close(self, *, take_waiting: bool = False) -> None:
        """Listen no more; `take_waiting`: take those first who are waiting still, where they are wanted."""
        self._loop.remove_reader(self.listener)
        while take_waiting and self._wanted() and self._accept_one():
            pass
        if self._pause is not None:
            self._pause.cancel()
        self.listener.close()

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._wanted():
                self._rest(_PAUSE_S)
                return
            if not self._accept_one():
                return

    def _accept_one(self) -> bool:
        try:
            connection, _ = self.listener.accept()
        except _NONE_THERE:
            return False
        except OSError as error:
            self._log.note("cannot_accept", reason=error.strerror)
            self._rest(_FULL_PAUSE_S)
            return False
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # stays with it, wherever it goes
        self._give(connection)
        return True

    def _rest(self, seconds: float) -> None:
        self._loop.remove_reader(self.listener)
        self._pause = self._loop.call_later(seconds, self._loop.add_reader, self.listener, self._accept)


class HttpConnection(asyncio.Protocol):
    """Stands before the protocol of a connection, and knows by when the next thing has to happen."""

    def __init__(self, owner: HttpListener, inner: asyncio.Protocol, host: str) -> None:
        self.host = host
        self._owner = owner
        self._inner = inner
        self._transport: asyncio.Transport | None = None
        self.requests = 0
        """Under way; one more while the connection is held."""
        self.on_lost: Callable[[], None] | None = None
        """Called once, when the connection is there no more."""
        self.is_lost = False
        self._is_held = False
        self._waits_for_first_byte = False
        self.ends_at = owner.time() + HEAD_WITHIN_S

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass
        self._owner.joined(transport, self)
        self._inner.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._waits_for_first_byte:
            self._waits_for_first_byte = False
            self.ends_at = self._owner.time() + HEAD_WITHIN_S
        self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        return self._inner.eof_received()

    def pause_writing(self) -> None:
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._inner.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        if self._transport is not None:
            self._owner.left(self._transport, self)
        self.is_lost = True
        self._inner.connection_lost(error)
        if self.on_lost is not None:
            self.on_lost()

    def begin_request(self, within_s: float) -> None:
        self.requests += 1
        self._waits_for_first_byte = False
        self.allow(within_s)

    def allow(self, within_s: float) -> None:
        """The next thing has to happen within so long from now; math.inf: nothing is waited for of the caller."""
        self.ends_at = self._owner.time() + within_s

    def end_request(self) -> None:
        self.requests -= 1
        self._waits_for_first_byte = not self._is_held
        self.ends_at = math.inf if self._is_held else self._owner.time() + IDLE_S

    def hold(self) -> None:
        """Something hangs on this connection: it is not closed for being idle, nor for who comes next; and it ends soon
        after the machine of its caller is gone.
        """
        if self._is_held:
            return
        self._is_held = True
        self.requests += 1
        if self._transport is not None:
            keep_alive(self._transport.get_extra_info("socket"))

    def let_go(self) -> None:
        """Nothing hangs on it any more."""
        if self._is_held:
            self._is_held = False
            self.requests -= 1
            if not self.requests:
                self._waits_for_first_byte = True
                self.ends_at = self._owner.time() + IDLE_S

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()


class HttpListener:
    """Serves HTTP at an address with so many connections at most; `make` makes the protocol of each.

    One too many takes the place of the oldest that is in no request of the host that has most, one too many of a host
    that of its own oldest; where all are in requests, it is closed. `log` is told http_connections_full and
    http_timed_out. `tls` says whether a new connection speaks TLS, `host_of` which host an address counts as.
    """

    def __init__(
        self,
        listeners: Sequence[socket.socket],
        make: Callable[[], asyncio.Protocol],
        log: RateLimitedLog,
        max_connections: int,
        max_peer_connections: int | None = None,
        tls: Callable[[socket.socket], Awaitable[ssl.SSLContext | None]] | None = None,
        host_of: Callable[[object], str] = lambda peer: str(peer[0]) if isinstance(peer, tuple) else str(peer or ""),
    ) -> None:
        self._host_of = host_of
        self.hits = 0
        """How often there was no room for one more."""
        self._make = make
        self._log = log
        self._tls = tls
        self.max_connections = max_connections
        self._max_peer_connections = max_peer_connections
        self._loop = asyncio.get_running_loop()
        self._open: dict[asyncio.BaseTransport, HttpConnection] = {}
        self._of_host: dict[str, dict[asyncio.BaseTransport, HttpConnection]] = {}
        self._joining: dict[asyncio.Task[None], str] = {}
        self._joining_of: Counter[str] = Counter()
        self._accepting = [AcceptLoop(listener, self._adopt, log, self._keeps_up) for listener in listeners]
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)

    @property
    def port(self) -> int:
        port: int = self._accepting[0].listener.getsockname()[1]
        return port

    def __len__(self) -> int:
        """Connections that are open."""
        return len(self._open)

    def bound_by(self, max_connections: int, max_peer_connections: int | None) -> None:
        """From now on."""
        self.max_connections, self._max_peer_connections = max_connections, max_peer_connections

    def connection_of(self, transport: asyncio.BaseTransport | None) -> HttpConnection | None:
        """None: it is not open here."""
        return None if transport is None else self._open.get(transport)

    def time(self) -> float:
        return self._loop.time()

    @contextmanager
    def serving(self, transport: asyncio.BaseTransport | None) -> Iterator[None]:
        """While a request that is whole is being answered."""
        connection = self.connection_of(transport)
        if connection is None:
            yield
            return
        connection.begin_request(ANSWER_WITHIN_S)
        try:
            yield
        finally:
            connection.end_request()

    def stop_accepting(self) -> None:
        """Listen no more; those who wait are left to whoever listens there as well."""
        for accepting in self._accepting:
            accepting.close()
        self._accepting = []

    def close(self) -> None:
        """Listen no more. What is open is closed by whoever made its protocols."""
        self.stop_accepting()
        self._sweeper.cancel()
        for task in self._joining:
            task.cancel()

    def joined(self, transport: asyncio.BaseTransport, connection: HttpConnection) -> None:
        self._open[transport] = connection
        self._of_host.setdefault(connection.host, {})[transport] = connection

    def left(self, transport: asyncio.BaseTransport, connection: HttpConnection) -> None:
        self._open.pop(transport, None)
        same = self._of_host.get(connection.host, {})
        same.pop(transport, None)
        if not same:
            self._of_host.pop(connection.host, None)

    def _keeps_up(self) -> bool:
        """Those who have just come are not closed for who comes next: there is always somebody older."""
        return len(self._joining) < max(1, self.max_connections // 2)

    def _adopt(self, connection: socket.socket) -> None:
        host = self._host_of(_peer_of(connection))
        same = self._of_host.get(host, {})
        if len(self._open) + len(self._joining) >= self.max_connections:
            by_number = sorted(self._of_host.values(), key=len, reverse=True)
            has_room = self._make_room(chain.from_iterable(each.items() for each in by_number), self.max_connections)
        elif self._max_peer_connections and len(same) + self._joining_of[host] >= self._max_peer_connections:
            has_room = self._make_room(same.items(), self._max_peer_connections)
        else:
            has_room = True
        if not has_room:
            connection.close()
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._join(connection, host))
        self._joining[task] = host
        self._joining_of[host] += 1
        task.add_done_callback(self._has_joined)

    def _make_room(self, among: Iterable[tuple[asyncio.BaseTransport, HttpConnection]], at_most: int) -> bool:
        self.hits += 1
        self._log.note("http_connections_full", at_most=at_most)
        oldest = next((each for each in among if not each[1].requests), None)
        if oldest is None:
            return False
        self.left(*oldest)
        oldest[1].abort()
        return True

    def _has_joined(self, task: asyncio.Task[None]) -> None:
        host = self._joining.pop(task)
        self._joining_of[host] -= 1
        if not self._joining_of[host]:
            del self._joining_of[host]

    async def _join(self, connection: socket.socket, host: str) -> None:
        try:
            context = None if self._tls is None else await self._tls(connection)
            await self._loop.connect_accepted_socket(
                lambda: HttpConnection(self, self._make(), host),
                connection,
                ssl=context,
                ssl_handshake_timeout=None if context is None else HEAD_WITHIN_S,
            )
        except OSError:  # of TLS, too
            connection.close()
        except asyncio.CancelledError:
            connection.close()
            raise

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self._open.values()):
            if now >= connection.ends_at:
                self._log.note("http_timed_out")
                connection.abort()
        self._sweeper = self._loop.call_later(SWEEP_S, self._sweep)


def _peer_of(connection: socket.socket) -> object:
    """The address of the caller; None where it is gone already."""
    try:
        return connection.getpeername()
    except OSError:
        return None
