"""The fixtures keep their word: real stores, empty places, data that survives a kill."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
from pathlib import Path
from urllib.parse import urlsplit

import pymysql
import pytest
import redis

from tests.stores import places
from tests.stores.dynamodb_server import CREDENTIALS, ask
from tests.stores.places import RUNNING_STORES, Places, running_store
from tests.stores.process import StoreMissing, StoreServer, free_port


def test_a_redis_place_is_empty_and_apart_from_the_others(redis_places: Places) -> None:
    first, second = redis_places.fresh(), redis_places.fresh()
    with redis.Redis.from_url(first) as one, redis.Redis.from_url(second) as other:
        one.set("key", "value")
        assert one.dbsize() == 1
        assert other.dbsize() == 0


def test_a_port_is_given_out_once_although_nobody_has_bound_it() -> None:
    ports = [free_port() for _ in range(400)]
    assert len(set(ports)) == len(ports)


def test_a_mysql_place_is_an_empty_database(mysql_places: Places, mysql_server: StoreServer) -> None:
    database = mysql_places.fresh().rpartition("/")[2]
    connection = pymysql.connect(host="127.0.0.1", port=mysql_server.port, user="root", database=database)
    with contextlib.closing(connection), connection.cursor() as cursor:
        assert cursor.execute("SHOW TABLES") == 0


def test_a_dynamodb_place_is_a_table_that_is_not_there_yet(
    dynamodb_places: Places, dynamodb_server: StoreServer
) -> None:
    first, second = dynamodb_places.fresh(), dynamodb_places.fresh()
    port, table = dynamodb_server.port, urlsplit(first).path.strip("/")
    assert first == f"dynamodb://local/{table}?endpoint=http://127.0.0.1:{port}"
    assert urlsplit(second).path.strip("/") != table
    assert make_table(port, table) == (200, "ACTIVE")
    assert table in ask(port, "ListTables")[1]["TableNames"]
    dynamodb_places.wipe(first)
    assert table not in ask(port, "ListTables")[1]["TableNames"]
    for name, value in CREDENTIALS.items():
        assert os.environ[name] == value


def test_a_dynamodb_answers_its_own_machine_alone(dynamodb_server: StoreServer) -> None:
    with socket.create_connection(("127.0.0.1", dynamodb_server.port), 5, ("127.0.0.2", 0)) as other:
        other.settimeout(5)
        answer = b""
        with contextlib.suppress(ConnectionError):
            other.sendall(b"GET / HTTP/1.0\r\n\r\n")
            answer = other.recv(1)
    assert answer == b""
    assert ask(dynamodb_server.port, "ListTables")[0] == 200


def test_a_durable_dynamodb_keeps_what_it_answered_through_kill_9(durable_dynamodb_server: StoreServer) -> None:
    port = durable_dynamodb_server.port
    assert make_table(port, "kept") == (200, "ACTIVE")
    assert ask(port, "PutItem", TableName="kept", Item={"id": {"S": "1"}})[0] == 200
    durable_dynamodb_server.kill()
    durable_dynamodb_server.start()
    assert ask(port, "GetItem", TableName="kept", Key={"id": {"S": "1"}}) == (200, {"Item": {"id": {"S": "1"}}})


def test_a_durable_redis_keeps_what_it_answered_through_kill_9(durable_redis_server: StoreServer) -> None:
    with redis.Redis(port=durable_redis_server.port) as client:
        client.set("key", "value")
        durable_redis_server.kill()
    durable_redis_server.start()
    with redis.Redis(port=durable_redis_server.port) as client:
        assert client.get("key") == b"value"


def test_a_durable_mariadb_keeps_what_it_answered_through_kill_9(durable_mysql_server: StoreServer) -> None:
    durable_mysql_server.empty(0)
    connection = pymysql.connect(host="127.0.0.1", port=durable_mysql_server.port, user="root", autocommit=True)
    with contextlib.closing(connection), connection.cursor() as cursor:
        cursor.execute("CREATE TABLE place_0.kept (id INT PRIMARY KEY) ENGINE=InnoDB")
        cursor.execute("INSERT INTO place_0.kept VALUES (1)")
    durable_mysql_server.kill()
    durable_mysql_server.start()
    connection = pymysql.connect(host="127.0.0.1", port=durable_mysql_server.port, user="root")
    with contextlib.closing(connection), connection.cursor() as cursor:
        assert cursor.execute("SELECT id FROM place_0.kept") == 1


def test_a_stopped_store_leaves_no_process_and_no_data(durable_redis_server: StoreServer) -> None:
    pid = durable_redis_server.pid
    durable_redis_server.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert not durable_redis_server.directory.exists()


@pytest.mark.parametrize("name", ["redis", "mysql", "postgres", "dynamodb"])
def test_a_store_that_cannot_be_had_is_an_error_that_says_what_to_install(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    monkeypatch.setattr(places, "docker_answers", lambda: False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(StoreMissing, match=rf"apt-get install .*--without {name}"):
        places.start_server(name)


def test_running_stores_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUNNING_STORES, "redis=redis://127.0.0.1:6379 mysql=mysql+pymysql://root@127.0.0.1:3306")
    assert running_store("redis") == "redis://127.0.0.1:6379"
    assert running_store("mysql") == "mysql+pymysql://root@127.0.0.1:3306"
    monkeypatch.delenv(RUNNING_STORES)
    assert running_store("redis") is None


def make_table(port: int, name: str) -> tuple[int, str]:
    status, answer = ask(
        port,
        "CreateTable",
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
    )
    return status, answer["TableDescription"]["TableStatus"]
