"""What the measures beside other queues know of them: versions, programs, batches, beanstalkd's words."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.bench.peers import packages, produce
from tests.bench.peers.brokers import BROKERS
from tests.bench.peers.on_beanstalkd import BeanstalkdConnection
from tests.bench.peers.products import ASYNQ, BEANSTALKD, KITS, NATS, ON_POSTGRES, PRODUCTS, QUEUES
from tests.bench.run import PERSISTENCE

ALL = {product.name: product for product in (*PRODUCTS, *ON_POSTGRES, *QUEUES, *KITS, ASYNQ)}
FOLDER = Path(packages.__file__).parent


@pytest.mark.parametrize("name", ALL)
def test_each_product_has_a_producer_and_says_what_its_store_keeps(name: str) -> None:
    product = ALL[name]
    module = FOLDER / f"on_{product.name}.py"
    assert Path(product.producer[1]).exists() if product.producer else module.exists()
    assert product.store in PERSISTENCE


@pytest.mark.parametrize("name", BROKERS)
def test_brokers_listen_where_they_are_told_to(name: str) -> None:
    broker = BROKERS[name]
    told = [*broker.command(7_777, "/folder"), *broker.variables(7_777, "/folder", 8_888).values()]
    assert "7777" in told
    assert "127.0.0.1" in told


def test_a_version_is_that_of_the_manifest() -> None:
    manifest = "module m\n\nrequire example.org/alone v1.2.3\n\nrequire (\n\texample.org/two v2.0.1 // indirect\n)\n"
    assert packages.required(manifest, "example.org/alone") == "v1.2.3"
    assert packages.required(manifest, "example.org/two") == "v2.0.1"
    assert NATS.version().startswith("v2.")


def test_a_version_is_found_in_what_a_program_says() -> None:
    assert packages.first_number("beanstalkd 1.12") == "1.12"
    assert packages.first_number("rabbitmq-server\t3.10.8-1.1+deb12u1") == "3.10.8"
    with pytest.raises(ValueError, match="no version"):
        packages.first_number("beanstalkd")


def test_a_program_that_is_not_installed_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert "scripts/services --peers" in BEANSTALKD.missing()


def test_batches_are_for_all_queues_in_turn() -> None:
    calls = [(queue, len(sent)) for queue, sent in produce.batches(["a", "b"], 500, 100)]
    assert calls == [("a", 100), ("a", 100), ("a", 50), ("b", 100), ("b", 100), ("b", 50)]


@contextmanager
def beanstalkd(answers: bytes) -> Iterator[tuple[BeanstalkdConnection, socket.socket]]:
    """A connection, and its other end, which has answered already."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(answers)
        yield BeanstalkdConnection(ours), theirs


def test_beanstalkd_is_sent_many_jobs_at_once() -> None:
    with beanstalkd(b"USING bench\r\nINSERTED 1\r\nINSERTED 2\r\nINSERTED 3\r\n") as (connection, other):
        connection.put("bench", [b"one", b"three"])
        connection.put("bench", [b"x"])
        sent = b"use bench\r\nput 0 0 60 3\r\none\r\nput 0 0 60 5\r\nthree\r\nput 0 0 60 1\r\nx\r\n"
        assert other.recv(10_000) == sent


def test_beanstalkd_gives_the_jobs_that_there_are_and_loses_those_that_are_done() -> None:
    answers = b"DELETED\r\nRESERVED 7 4\r\na\r\nb\r\nRESERVED 8 0\r\n\r\nTIMED_OUT\r\n"
    with beanstalkd(answers) as (connection, other):
        assert list(connection.reserve(3, [5])) == [(7, b"a\r\nb"), (8, b"")]
        assert other.recv(10_000) == b"delete 5\r\nreserve\r\nreserve-with-timeout 0\r\nreserve-with-timeout 0\r\n"


def test_an_answer_of_beanstalkd_that_is_not_expected_is_an_error() -> None:
    with beanstalkd(b"OUT_OF_MEMORY\r\n") as (connection, _), pytest.raises(RuntimeError, match="OUT_OF_MEMORY"):
        connection.put("", [b"one"])
