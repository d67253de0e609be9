"""`pinlater serve` as an operator meets it: how it starts, what it refuses, what SIGHUP changes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from pinlater.data_folder.identity import known_stores
from pinlater.errors import install_command
from tests.server.running import PROGRAM, WITHIN_S, Plain, RunningServer, lives, running
from tests.stores.places import Places
from tests.stores.process import StoreServer, free_port
from tests.stores.sentinels import SentinelGroup

ROOT = Path(__file__).parents[2]


def command(folder: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """`pinlater ARGUMENTS`, to its end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    return subprocess.run(
        [PROGRAM, *arguments],
        cwd=folder,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        input="",
        timeout=WITHIN_S,
        check=False,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


async def works(port: int, queue: str = "mail") -> None:
    """One job goes through."""
    connection = await Plain.to(port)
    try:
        await connection.create_queue(queue)
        (descriptor,) = await connection.enqueue(queue, b"body")
        assert await connection.dequeue(queue) == {descriptor: b"body"}
    finally:
        await connection.close()


# -- starting ----------------------------------------------------------------------------------------------------------


async def test_with_no_argument_it_keeps_jobs_in_the_working_directory(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        await works(server.port)
        ready = server.wait_for("ready")
        assert (list(ready["shards"]), ready["processes"], ready["supervisor"] > 1) == (["1"], 1, True)
        assert server.stop() == 0
        assert server.process.stdout is not None
        assert server.process.stdout.read() == f"{ready['address']}\n"
    assert {path.name for path in (tmp_path / "pinlater-data").iterdir()} >= {"pinlater.db", "shards.json"}


async def test_jobs_are_there_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        connection = await Plain.to(server.port)
        await connection.create_queue("mail")
        descriptors = await connection.enqueue("mail", b"1", b"2")
        await connection.close()
        server.stop()
    with running(tmp_path) as server:
        connection = await Plain.to(server.port)
        assert set(await connection.dequeue("mail", 10)) == set(descriptors)
        await connection.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_exit_code_0(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as server:
        server.wait_for("ready")
        assert server.stop(number) == 0
        assert server.events[-1]["event"] == "stopped"
        assert not [event for event in server.events if event["level"] in ("warning", "error")]


def test_a_signal_while_it_starts_ends_it_too(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        while not server.has_child():
            assert server.process.poll() is None
        assert server.stop() in (0, -signal.SIGTERM)


@pytest.mark.parametrize(
    "kind",
    [
        "sqlite",
        pytest.param("redis", marks=pytest.mark.store("redis")),
        pytest.param("mysql", marks=pytest.mark.store("mysql")),
        pytest.param("postgresql", marks=pytest.mark.store("postgres")),
        pytest.param("dynamodb", marks=pytest.mark.store("dynamodb")),
    ],
)
async def test_each_file_in_conf_starts_a_server(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    url = request.getfixturevalue(f"{'postgres' if kind == 'postgresql' else kind}_places").fresh()
    with running(tmp_path, "--config", str(ROOT / "conf" / f"{kind}.toml"), "--store", url) as server:
        await works(server.port)
        assert server.stop() == 0


@pytest.mark.slow
@pytest.mark.store("redis")
async def test_the_file_with_sentinels_starts_a_server(tmp_path: Path) -> None:
    with SentinelGroup() as group:
        file = str(ROOT / "conf" / "redis-sentinel.toml")
        with running(tmp_path, "--config", file, "--store", f"1={group.url('?wait=1')}") as server:
            await works(server.port)
            assert server.stop() == 0


async def test_the_sqlite_file_in_conf_needs_no_flag(tmp_path: Path) -> None:
    with running(tmp_path, "--config", str(ROOT / "conf" / "sqlite.toml")) as server:
        await works(server.port)


async def test_several_shards_and_a_store_that_is_out(tmp_path: Path, sqlite_places: Places) -> None:
    out = f"2=redis://127.0.0.1:{free_port()}/0"
    with running(tmp_path, "--store", f"1={sqlite_places.fresh()}", "--store", out) as server:
        connection = await Plain.to(server.port)
        await connection.create_queue("mail")
        assert len(await connection.enqueue("mail", b"body")) == 1
        await connection.close()
        server.wait_for("shard_unreachable", shard="2")


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_one_clear_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        done = command(tmp_path, "serve", "--port", str(port))
    assert done.returncode == 1
    expected = (
        f"pinlater: cannot start: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port"
    )
    assert last_line(done) == expected
    assert not (tmp_path / "pinlater-data" / "admin-password").exists(), "commands here would send it to the other one"


def test_an_address_of_another_machine_is_one_clear_line(tmp_path: Path) -> None:
    done = command(tmp_path, "serve", "--port", "0", "--host", "192.0.2.1")
    assert done.returncode == 1
    assert "Cannot assign requested address; choose another --host" in last_line(done)


def test_stores_without_ids_wait_for_the_one_that_cannot_be_reached(tmp_path: Path, sqlite_places: Places) -> None:
    out = f"redis://127.0.0.1:{free_port()}/0"
    done = command(tmp_path, "serve", "--port", "0", "--store", sqlite_places.fresh(), "--store", out)
    assert done.returncode == 1
    assert "--store ID=URL" in last_line(done)


def test_all_mistakes_are_told_with_exit_code_2(tmp_path: Path) -> None:
    done = command(tmp_path, "serve", "--port", "x", "--claim-timeout", "5", PINLATER_MAX_BODY="1MB")
    assert done.returncode == 2
    assert [line.split()[1] for line in done.stderr.splitlines()] == ["port", "claim-timeout", "max-body"]
    assert not list(tmp_path.iterdir())


def test_a_store_that_does_not_answer_is_named_without_its_password(tmp_path: Path) -> None:
    port = free_port()
    done = command(tmp_path, "serve", "--port", "0", "--store", f"1=redis://:geheim@127.0.0.1:{port}/0")
    assert done.returncode == 1
    assert "no store can be used; redis" in last_line(done)
    assert f"127.0.0.1:{port}/0" in last_line(done)
    assert "geheim" not in done.stderr


def test_a_data_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = command(tmp_path, "serve", "--port", "0", "--data", "file/data")
    assert done.returncode == 1
    assert last_line(done).startswith("pinlater: cannot start: no store can be used; file/data/pinlater.db: its folder")


def test_a_server_on_another_store_needs_no_data_folder(tmp_path: Path, redis_places: Places) -> None:
    (tmp_path / "file").touch()
    with running(tmp_path, "--store", redis_places.fresh(), "--data", "file/data") as server:
        server.wait_for("ready")
        server.wait_for("store_record_not_written")


@pytest.mark.parametrize("arguments", [["--prot", "1"], ["extra"]])
def test_an_unknown_flag_is_a_usage_error(tmp_path: Path, arguments: list[str]) -> None:
    assert command(tmp_path, "serve", *arguments).returncode == 2


def test_a_missing_extra_is_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['structlog'] = None; from pinlater.cli import main; main(['serve'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"pinlater: serve needs the Python package structlog: {install_command('server')}\n"


def test_a_missing_driver_is_one_line(tmp_path: Path) -> None:
    code = "import sys; sys.modules['hiredis'] = None; from pinlater.cli import main; main()"
    arguments = ["serve", "--port", "0", "--store", "1=redis://127.0.0.1/0"]
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert install_command("redis") in last_line(done)


# -- which store is it? ------------------------------------------------------------------------------------------------


async def test_a_wiped_store_is_refused_until_it_is_accepted(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.wait_for("ready")
    for path in (tmp_path / "pinlater-data").glob("pinlater.db*"):
        path.unlink()
    for _ in range(2):
        done = command(tmp_path, "serve", "--port", "0")
        assert done.returncode == 1
        assert "--accept-new-store" in last_line(done)
    with running(tmp_path, "--accept-new-store", "1") as server:
        await works(server.port)
    with running(tmp_path) as server:
        await works(server.port)


def test_a_shard_that_came_late_is_on_the_record_too(
    tmp_path: Path, sqlite_places: Places, durable_redis_server: StoreServer
) -> None:
    durable_redis_server.terminate()
    stores = ["--store", f"1={sqlite_places.fresh()}", "--store", f"2={durable_redis_server.url()}"]
    with running(tmp_path, *stores) as server:
        server.wait_for("ready")
        assert set(known_stores(tmp_path / "pinlater-data")) == {"1"}
        durable_redis_server.start()
        server.wait_for("shard_in", shard="2")
    assert set(known_stores(tmp_path / "pinlater-data")) == {"1", "2"}


def test_a_store_under_another_id_is_refused(tmp_path: Path, sqlite_places: Places) -> None:
    url = sqlite_places.fresh()
    with running(tmp_path, "--store", f"a={url}") as server:
        server.wait_for("ready")
    done = command(tmp_path, "serve", "--port", "0", "--store", f"b={url}")
    assert done.returncode == 1
    assert "'a'" in last_line(done) or " a" in last_line(done)


def test_without_an_id_the_stores_own_record_decides(tmp_path: Path, sqlite_places: Places) -> None:
    url, fresh = sqlite_places.fresh(), sqlite_places.fresh()
    with running(tmp_path, "--store", f"blue={url}") as server:
        server.wait_for("ready")
    with running(tmp_path, "--store", url, "--store", fresh) as server:
        assert set(server.wait_for("ready")["shards"]) == {"blue", "1"}


def test_a_broken_record_is_named(tmp_path: Path) -> None:
    (tmp_path / "pinlater-data").mkdir()
    (tmp_path / "pinlater-data" / "shards.json").write_text("{")
    done = command(tmp_path, "serve", "--port", "0")
    assert done.returncode == 1
    assert "shards.json" in last_line(done)


# -- SIGHUP ------------------------------------------------------------------------------------------------------------


def configured(tmp_path: Path, text: str) -> list[str]:
    (tmp_path / "server.toml").write_text(text)
    return ["--config", "server.toml"]


async def roll(server: RunningServer, outcome: str) -> None:
    seen = len(server.events)
    server.send(signal.SIGHUP)
    await asyncio.to_thread(server.wait_for, outcome, after=seen)


async def test_a_roll_brings_the_new_configuration(tmp_path: Path) -> None:
    with running(tmp_path, *configured(tmp_path, "max-body = 10\n")) as server:
        connection = await Plain.to(server.port)
        await connection.create_queue("mail")
        with pytest.raises(AssertionError, match="BODY_TOO_LARGE"):
            await connection.enqueue("mail", b"x" * 11)
        configured(tmp_path, "max-body = 11\n")
        await roll(server, "rolled")
        await connection.enqueue("mail", b"x" * 11)
        await connection.close()


@pytest.mark.parametrize("wrong", ["max-body = 'x'\n", "max-bodi = 1\n", "host = '203.0.113.1'\n"])
async def test_a_roll_to_a_configuration_with_mistakes_changes_nothing(tmp_path: Path, wrong: str) -> None:
    with running(tmp_path, *configured(tmp_path, "")) as server:
        before = server.wait_for("ready")["workers"]
        configured(tmp_path, wrong)
        await roll(server, "roll_refused")
        await works(server.port)
        assert all(lives(pid) for pid in before)
        configured(tmp_path, "")
        await roll(server, "rolled")
        await works(server.port)


async def test_a_roll_to_another_port_keeps_the_connections(tmp_path: Path) -> None:
    ports = free_port(), free_port()
    with running(tmp_path, *configured(tmp_path, f"port = {ports[0]}\n"), port=None) as server:
        connection = await Plain.to(server.port)
        await connection.create_queue("mail")
        configured(tmp_path, f"port = {ports[1]}\n")
        await roll(server, "rolled")
        await connection.enqueue("mail", b"1")
        await works(ports[1], "other")
        with pytest.raises(ConnectionRefusedError):
            await Plain.to(ports[0])
        await connection.close()


@contextmanager
def on_a_terminal(folder: Path, *prefix: str) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], None]]]:
    """A server that serves, on a terminal of its own, and what closes that terminal."""
    ours, theirs = os.openpty()
    as_usual = ["env", "--default-signal=HUP"]  # the tests themselves may run under nohup
    command = ["setsid", "--ctty", *as_usual, *prefix, PROGRAM, "serve", "--port", "0"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PINLATER_")}
    with open(ours, "rb", buffering=0) as terminal:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs)
        os.close(theirs)
        try:
            while b"ready" not in terminal.readline():
                pass
            yield process, terminal.close
        finally:
            process.kill()
            process.wait()


def test_a_server_ends_with_the_terminal_that_it_was_started_on(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path) as (process, close_terminal):
        close_terminal()
        assert process.wait(WITHIN_S) == 0


def test_under_nohup_it_outlives_the_terminal(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "sh", "-c", 'trap "" HUP; exec "$0" "$@"') as (process, close_terminal):
        close_terminal()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1)
        process.terminate()
        assert process.wait(WITHIN_S) == 0


# -- what is printed ---------------------------------------------------------------------------------------------------


def test_print_config_starts_nothing_and_can_be_read_back(tmp_path: Path) -> None:
    done = command(tmp_path, "serve", "--store", "7=redis://h/0", "--print-config", PINLATER_PORT="77")
    assert (done.returncode, done.stderr) == (0, "")
    assert "port = 77  # PINLATER_PORT" in done.stdout
    (tmp_path / "printed.toml").write_text(done.stdout)
    again = command(tmp_path, "serve", "--config", "printed.toml", "--print-config")
    strip = [line.partition("  #")[0] for line in done.stdout.splitlines()]
    assert [line.partition("  #")[0] for line in again.stdout.splitlines()] == strip


def test_help_names_every_setting_and_has_examples(tmp_path: Path) -> None:
    done = command(tmp_path, "serve", "--help")
    assert done.returncode == 0
    for word in ("--claim-timeout", "--admin-password-hash", "--store", "Examples:", "SIGHUP", "Exit codes"):
        assert word in done.stdout


def test_logs_for_people(tmp_path: Path) -> None:
    with running(tmp_path, "--log-format", "human") as server:
        assert server.process.stdout is not None
        assert server.process.stdout.readline()  # the address, which is printed when it is ready
        server.stop()
        (ready,) = [event["text"] for event in server.events if " ready " in event["text"]]
    assert "address=127.0.0.1:" in ready
