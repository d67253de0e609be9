"""The proxy breaks connections in the way it says."""

from __future__ import annotations

import contextlib
import queue
import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.faults.proxy import Proxy


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(65_536):
            self.request.sendall(data)


class EchoServer(socketserver.ThreadingTCPServer):
    daemon_threads = False
    block_on_close = True


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with EchoServer(("127.0.0.1", 0), Echo) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with Proxy(server.server_address[1]) as running:
            yield running
        server.shutdown()
        thread.join()


@pytest.fixture
def connection(proxy: Proxy) -> Iterator[socket.socket]:
    with connect(proxy) as opened:
        assert echoed(opened, b"hello") == b"hello"
        yield opened


def connect(proxy: Proxy, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=60, source_address=(source, 0))


def echoed(connection: socket.socket, data: bytes) -> bytes:
    connection.sendall(data)
    return received(connection, len(data))


def received(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (more := connection.recv(size - len(data))):
        data += more
    return data


def test_bytes_pass_both_ways_whole(connection: socket.socket) -> None:
    data = bytes(range(256)) * 1_000
    assert echoed(connection, data) == data


def test_cut_closes_connections_in_order_and_refuses_new_ones_until_healed(
    proxy: Proxy, connection: socket.socket
) -> None:
    proxy.cut()
    assert connection.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)
    proxy.heal()
    with connect(proxy) as again:
        assert echoed(again, b"back") == b"back"


def test_one_peer_is_cut_off_while_the_others_go_on(proxy: Proxy, connection: socket.socket) -> None:
    with connect(proxy, "127.0.0.2") as other:
        assert echoed(other, b"other") == b"other"
        proxy.cut_peer("127.0.0.2")
        assert other.recv(1) == b""
    with connect(proxy, "127.0.0.2") as again, contextlib.suppress(ConnectionError):
        assert echoed(again, b"again") == b""
    assert echoed(connection, b"on") == b"on"
    proxy.heal()
    with connect(proxy, "127.0.0.2") as again:
        assert echoed(again, b"back") == b"back"


def test_reset_is_a_reset_and_not_an_end(proxy: Proxy, connection: socket.socket) -> None:
    proxy.reset()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    with pytest.raises(ConnectionRefusedError):
        connect(proxy)


def test_dropped_connections_are_reset_while_new_ones_are_served(proxy: Proxy, connection: socket.socket) -> None:
    proxy.drop_connections()
    with pytest.raises(ConnectionResetError):
        connection.recv(1)
    with connect(proxy) as again:
        assert echoed(again, b"new") == b"new"


def test_lost_connections_carry_nothing_while_new_ones_are_served(proxy: Proxy, connection: socket.socket) -> None:
    proxy.lose_connections()
    connection.settimeout(0.1)
    connection.sendall(b"lost")
    with connect(proxy) as other:
        assert echoed(other, b"new") == b"new"
    with pytest.raises(TimeoutError):
        connection.recv(1)


def test_a_black_hole_takes_all_bytes_and_answers_none_until_healed(proxy: Proxy, connection: socket.socket) -> None:
    proxy.black_hole()
    connection.settimeout(0.1)
    connection.sendall(b"lost?")
    with pytest.raises(TimeoutError):
        connection.recv(1)
    proxy.heal()
    connection.settimeout(5)
    assert received(connection, 5) == b"lost?"


def test_a_black_hole_for_answers_lets_requests_arrive() -> None:
    arrived = threading.Event()

    class Notes(Echo):
        def handle(self) -> None:
            self.request.recv(65_536)
            arrived.set()

    with EchoServer(("127.0.0.1", 0), Notes) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with Proxy(server.server_address[1]) as proxy, connect(proxy) as connection:
            proxy.black_hole(answers_only=True)
            connection.sendall(b"request")
            assert arrived.wait(5)
        server.shutdown()
        thread.join()


def test_delay_holds_bytes_both_ways(proxy: Proxy, connection: socket.socket) -> None:
    proxy.delay(0.1)
    started = time.monotonic()
    assert echoed(connection, b"later") == b"later"
    assert time.monotonic() - started >= 0.2


def test_slow_is_bytes_per_second(proxy: Proxy, connection: socket.socket) -> None:
    proxy.slow(10_000)
    started = time.monotonic()
    assert echoed(connection, bytes(2_000)) == bytes(2_000)
    assert time.monotonic() - started >= 0.2


def test_half_close_ends_the_answers_only() -> None:
    arrived: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    class Tells(Echo):
        def handle(self) -> None:
            while data := self.request.recv(65_536):
                self.request.sendall(data)
                arrived.put(data)

    with EchoServer(("127.0.0.1", 0), Tells) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        with Proxy(server.server_address[1]) as proxy, connect(proxy) as connection:
            assert echoed(connection, b"whole") == arrived.get(timeout=5)
            proxy.half_close()
            assert connection.recv(1) == b""
            for data in (b"still", b"taken"):
                connection.sendall(data)
                assert arrived.get(timeout=5) == data
        server.shutdown()
        thread.join()
