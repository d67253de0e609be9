"""The relay between real databases and a real server: order, turns, refusals, and all that can be away."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pinlater import Client, DequeueRequest, Job
from pinlater.errors import PinLaterError
from pinlater_workers import App, ConfigurationError
from pinlater_workers.outbox import Outbox
from pinlater_workers.outbox.database import Database
from pinlater_workers.outbox.outbox_view import OutboxView
from tests.server.running import running
from tests.stores.places import start_server
from tests.stores.process import free_port
from tests.workers.outbox_stand import DIALECTS, OutboxPlace, RecordingSink, Shop, fresh_place, numbers, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running(tmp_path_factory.mktemp("server")) as found:
        yield f"127.0.0.1:{found.port}"


@pytest.fixture(params=DIALECTS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> OutboxPlace:
    """With an outbox in it."""
    found = fresh_place(request.param, request, tmp_path)
    with found.engine.begin() as connection:
        Shop().outbox.create_table(connection)
    return found


def fresh_queue(server: str, name: str) -> Client:
    client = Client(server)
    if name in client.queue_names():
        for job in client.dequeue(DequeueRequest(name, limit=1000)):
            raise AssertionError(f"{job} is left in queue {name}")
    client.create_queue(name)
    return client


def write(place: OutboxPlace, shop: Shop, *some: int) -> None:
    with place.engine.begin() as connection:
        shop.outbox.enqueue_many(connection, shop.send, [{"to": "ada", "number": number} for number in some])


def test_what_is_committed_reaches_a_server_in_order(
    place: OutboxPlace, server: str, request: pytest.FixtureRequest
) -> None:
    queue = f"order_{place.engine.dialect.name}"
    with fresh_queue(server, queue) as client:
        shop = Shop(server)
        many = shop.send.options(queue=queue, priority=1)
        with place.engine.begin() as connection:
            shop.outbox.enqueue_many(connection, many, [{"to": "ada", "number": n} for n in range(1200)])
        relay = shop.outbox.relay(place.url)
        assert (relay.run_once(), place.waiting()) == (1200, 0)
        found = [job.body for _ in range(3) for job in client.dequeue(DequeueRequest(queue, limit=400))]
        assert numbers([Job(body) for body in found]) == list(range(1200))
        shop.app.close()


@pytest.mark.store("postgres")
@pytest.mark.store("mysql")
@pytest.mark.parametrize("dialect", ["postgresql", "mysql"])
def test_a_transaction_with_a_lower_id_that_commits_later_is_not_skipped(
    dialect: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    place = fresh_place(dialect, request, tmp_path)
    shop = Shop()
    sink = shop.record()
    relay = shop.outbox.relay(place.url)
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
    with place.engine.connect() as early, place.engine.connect() as late:
        shop.outbox.enqueue(early, shop.send, "ada", number=1)
        shop.outbox.enqueue(late, shop.send, "ada", number=2)
        late.commit()
        assert relay.run_once() == 1
        assert relay.run_once() == 0
        early.commit()
        assert relay.run_once() == 1
    assert [numbers(jobs) for _, jobs in sink.calls] == [[2], [1]]


def test_several_relays_keep_the_order_of_one_and_hand_over_nothing_twice(place: OutboxPlace) -> None:
    shop = Shop()
    under_way = threading.Lock()

    def look(bodies: list[bytes]) -> None:
        assert under_way.acquire(blocking=False), "two relays hand over at the same time"
        time.sleep(0.002)
        under_way.release()

    sink = shop.app.sink = RecordingSink(look)
    relays = [shop.outbox.relay(place.url, poll=0.005, batch=7).start() for _ in range(4)]
    for start in range(0, 600, 20):
        write(place, shop, *range(start, start + 20))
    until(lambda: len(sink.bodies) >= 600, "all are handed over")
    assert [relay.stop(20) for relay in relays] == [True] * 4
    assert numbers([job for _, jobs in sink.calls for job in jobs]) == list(range(600))
    assert sum(relay.stats.handed_over for relay in relays) == 600
    assert place.waiting() == 0


def test_who_writes_does_not_wait_for_a_server_that_hangs(place: OutboxPlace) -> None:
    shop = Shop()
    hangs, goes_on = threading.Event(), threading.Event()

    def hang(bodies: list[bytes]) -> None:
        hangs.set()
        assert goes_on.wait(30)

    sink = shop.app.sink = RecordingSink(hang)
    write(place, shop, 1)
    with shop.outbox.relay(place.url, poll=0.01):
        assert hangs.wait(30)
        write(place, shop, 2)
        assert place.waiting() == 2
        goes_on.set()
        until(lambda: len(sink.bodies) == 2, "both are handed over")


def test_refused_jobs_are_set_aside_and_come_again_when_told_to(place: OutboxPlace, server: str) -> None:
    queue, later = f"kept_{place.engine.dialect.name}", f"later_{place.engine.dialect.name}"
    with fresh_queue(server, queue) as client:
        shop = Shop(server)
        wrong = Job(b"no such priority", priority=99)
        with place.engine.begin() as connection:
            shop.outbox.enqueue_jobs(connection, queue, [Job(b"first"), wrong, Job(b"last")])
            shop.outbox.enqueue_jobs(connection, later, [Job(b"too early")])
        relay = shop.outbox.relay(place.url)
        assert relay.run_once() == 2
        assert {job.body for job in client.dequeue(DequeueRequest(queue, limit=10))} == {b"first", b"last"}
        assert relay.stats.refused == 1
        view = OutboxView(Database.of(place.url), "pinlater_outbox")
        (refused,) = view.refused(10)
        assert (refused.queue, refused.job, refused.size) == (queue, "-", 16)
        assert "priority" in refused.error
        status = view.status()
        assert {(each.queue, each.waiting, each.refused) for each in status.queues} == {(queue, 0, 1), (later, 1, 0)}
        assert (status.relay, status.handed_over) == (relay.name, 2)
        assert status.error.startswith(f"queue {later} takes no jobs: ")
        place.run("UPDATE pinlater_outbox_refused SET priority = 1")
        assert view.retry(queue) == 1
        assert view.retry() == 0
        client.create_queue(later)
        assert shop.outbox.relay(place.url).run_once() == 2
        assert [job.body for job in client.dequeue(DequeueRequest(queue, limit=10))] == [b"no such priority"]
        assert [job.body for job in client.dequeue(DequeueRequest(later, limit=10))] == [b"too early"]
        view.close()
        shop.app.close()


def test_a_job_that_is_too_large_for_the_servers_keeps_nobody_waiting(server: str, tmp_path: Path) -> None:
    """One beyond the bound of bodies, and one beyond what a server reads at all."""
    place = OutboxPlace(f"sqlite:///{tmp_path}/app.db")
    with fresh_queue(server, "sizes") as client:
        shop = Shop(server)
        jobs = [Job(b"first"), Job(b"x" * 9_000_000), Job(b"y" * 20_000_000), Job(b"last")]
        with place.engine.begin() as connection:
            shop.outbox.create_table(connection)
            shop.outbox.enqueue_jobs(connection, "sizes", jobs)
        with shop.outbox.relay(place.url, poll=0.01) as relay:
            until(lambda: place.waiting() == 0, "nothing waits")
            until(lambda: relay.stats.refused == 2, "two are refused")
        assert [job.body for job in client.dequeue(DequeueRequest("sizes", limit=10))] == [b"first", b"last"]
        view = OutboxView(Database.of(place.url), "pinlater_outbox")
        assert [job.size for job in view.refused(10)] == [9_000_000, 20_000_000]
        view.close()
        shop.app.close()


def test_jobs_wait_for_servers_that_are_away_and_the_status_says_so(
    place: OutboxPlace, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pinlater_workers.outbox")
    port = free_port()
    app = App(servers=[f"127.0.0.1:{port}"])
    outbox = Outbox(app)
    with place.engine.begin() as connection:
        outbox.enqueue_jobs(connection, "mail", [Job(b"1"), Job(b"2")])
    with outbox.relay(place.url, poll=0.01) as relay:
        until(lambda: relay.stats.server_failures >= 2, "it tries again")
        assert (relay.stats.is_away, relay.stats.handed_over) == (True, 0)
        view = OutboxView(Database.of(place.url), "pinlater_outbox")
        until(lambda: view.status().error, "the status says why")
        with running(tmp_path, port=port), Client(f"127.0.0.1:{port}") as client:
            client.create_queue("mail")
            until(lambda: relay.stats.handed_over == 2, "it goes on")
            until(lambda: not view.status().error, "the status says that it is over")
            assert [job.body for job in client.dequeue(DequeueRequest("mail", limit=10))] == [b"1", b"2"]
        view.close()
    app.close()
    said = [record.getMessage() for record in caplog.records if "take no jobs" in record.getMessage()]
    assert len(said) == 2, said
    assert said[1].startswith("over after ")


def test_a_queue_that_is_missing_is_told_in_log_and_status_until_it_is_there(
    server: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "pinlater_workers.outbox")
    place = OutboxPlace(f"sqlite:///{tmp_path}/app.db")
    shop = Shop(server)
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
        shop.outbox.enqueue_jobs(connection, "missing", Job(b"early"))
    view = OutboxView(Database.of(place.url), "pinlater_outbox")
    with shop.outbox.relay(place.url, poll=0.01) as relay:
        until(lambda: view.status().error.startswith("queue missing takes no jobs: "), "the status says so")
        assert not relay.stats.is_away
        shop.app.client.create_queue("missing")
        until(lambda: relay.stats.handed_over == 1, "it is there")
        until(lambda: not view.status().error, "the status is good again")
    view.close()
    shop.app.close()
    said = [record.getMessage() for record in caplog.records if "queue missing" in record.getMessage()]
    assert len(said) == 2, said
    assert said[1].endswith(": queue missing takes no jobs")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.store(name)) for name in ("postgres", "mysql")])
def test_a_database_that_is_restarted_is_found_again(name: str) -> None:
    database = start_server(name, durable=True)
    try:
        database.empty(0)
        place = OutboxPlace(database.url())
        shop = Shop()
        sink = shop.record()
        with place.engine.begin() as connection:
            shop.outbox.create_table(connection)
        with shop.outbox.relay(place.url, poll=0.01) as relay:
            write(place, shop, 1)
            until(lambda: len(sink.bodies) == 1, "the first is handed over")
            database.terminate()
            until(lambda: relay.stats.database_failures >= 2, "it tries again")
            database.start()
            write(place, shop, 2)
            until(lambda: len(sink.bodies) == 2, "it goes on")
            until(lambda: not relay.stats.is_away, "it says so")
    finally:
        database.stop()


def test_a_relay_waits_for_its_table_and_says_how_to_make_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    place = OutboxPlace(f"sqlite:///{tmp_path}/app.db")
    shop = Shop()
    sink = shop.record()
    with shop.outbox.relay(place.url, poll=0.01) as relay:
        until(lambda: relay.stats.database_failures, "there is no table")
        with place.engine.begin() as connection:
            shop.outbox.create_table(connection)
        write(place, shop, 1)
        until(lambda: sink.bodies, "it goes on")
    assert "no such table: pinlater_outbox" in caplog.text
    assert "`pinlater-worker outbox schema` prints the tables" in caplog.text


def test_rows_whose_removal_failed_are_removed_and_not_sent_again(tmp_path: Path) -> None:
    place = OutboxPlace(f"sqlite:///{tmp_path}/app.db")
    shop = Shop()
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
    write(place, shop, 1, 2)
    blocking = place.engine.connect()

    def block(bodies: list[bytes]) -> None:
        if not blocking.in_transaction():
            blocking.exec_driver_sql("BEGIN IMMEDIATE")

    sink = shop.app.sink = RecordingSink(block)
    with shop.outbox.relay(f"{place.url}?timeout=0.05", poll=0.01) as relay:
        until(lambda: relay.stats.database_failures >= 2, "the rows cannot be removed")
        assert place.waiting() == 2
        blocking.rollback()
        blocking.close()
        until(lambda: place.waiting() == 0, "they are removed")
    assert numbers([job for _, jobs in sink.calls for job in jobs]) == [1, 2]


def test_a_stop_finishes_the_batch_under_way_and_begins_no_other(place: OutboxPlace) -> None:
    shop = Shop()
    begun, goes_on = threading.Event(), threading.Event()

    def wait(bodies: list[bytes]) -> None:
        begun.set()
        assert goes_on.wait(30)

    shop.app.sink = RecordingSink(wait)
    write(place, shop, *range(20))
    relay = shop.outbox.relay(place.url, batch=10).start()
    assert begun.wait(30)
    assert relay.stop(0.01) is False
    goes_on.set()
    assert relay.stop(30) is True
    assert (relay.stats.handed_over, place.waiting()) == (10, 10)


def test_an_enqueue_in_the_same_process_is_handed_over_long_before_the_next_poll(tmp_path: Path) -> None:
    place = OutboxPlace(f"sqlite:///{tmp_path}/app.db")
    shop = Shop()
    sink = shop.record()
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
    with shop.outbox.relay(place.url, poll=3600):
        until(lambda: place.rows("SELECT relay FROM pinlater_outbox_relay"), "it has looked once")
        for number in range(5):
            write(place, shop, number)
            until(lambda n=number: len(sink.bodies) == n + 1, "it looks at once")  # type: ignore[misc]


def test_a_batch_holds_no_more_bytes_than_its_bound(place: OutboxPlace) -> None:
    shop = Shop()
    sink = shop.record()
    with place.engine.begin() as connection:
        for number in range(4):
            shop.outbox.enqueue_jobs(connection, "mail", Job(bytes([number]) * 3_000_000))
    relay = shop.outbox.relay(place.url)
    assert relay.run_once() == 4
    assert [body[0] for body in sink.bodies] == [0, 1, 2, 3]
    assert [len(jobs) for _, jobs in sink.calls] == [1, 1, 1, 1]


def test_run_once_raises_what_is_away(tmp_path: Path) -> None:
    place = OutboxPlace(f"sqlite:///{tmp_path}/app.db")
    shop = Shop(f"127.0.0.1:{free_port()}")
    with place.engine.begin() as connection:
        shop.outbox.create_table(connection)
        shop.outbox.enqueue(connection, shop.send, "ada")
    with pytest.raises(PinLaterError):
        shop.outbox.relay(place.url).run_once()
    assert place.waiting() == 1
    shop.app.close()


@pytest.mark.parametrize(
    ("database", "says"),
    [
        ("nonsense", "no URL that SQLAlchemy knows"),
        ("oracle+nothing://db/x", "no URL that SQLAlchemy knows"),
        (42, "allowed: a URL as in"),
    ],
)
def test_what_is_no_database_is_refused(database: object, says: str) -> None:
    with pytest.raises(ConfigurationError, match=says):
        Shop().outbox.relay(database)


def test_polls_and_batches_that_cannot_be_are_refused() -> None:
    outbox = Shop().outbox
    with pytest.raises(ConfigurationError, match="poll is 0; allowed: 1ms to 1h"):
        outbox.relay("sqlite://", poll=0)
    with pytest.raises(ConfigurationError, match="batch is 0; allowed: 1 to 10,000"):
        outbox.relay("sqlite://", batch=0)
    with pytest.raises(ConfigurationError, match="an outbox's table is 'drop table;'; allowed"):
        Outbox(Shop().app, table="drop table;")


def test_a_relay_that_ends_by_itself_says_that_jobs_stay(caplog: pytest.LogCaptureFixture) -> None:
    relay = Shop().outbox.relay(lambda: object()).start()
    until(lambda: relay.stats.is_away, "it ends")  # before it is told to stop
    assert relay.stop(60.0)
    assert "it ends, and jobs stay in the outbox until another one is started" in caplog.text
