"""The owner of the data folder of a plain server is its operator, without configuring anything."""

from __future__ import annotations

import json
import re
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from pinlater import Client
from pinlater.data_folder.password import PASSWORD_FILE, hash_password
from tests.server.commands import Shell
from tests.server.running import PROGRAM, RunningServer, running
from tests.server.terminal import Terminal
from tests.stores.places import Places, start_server

DATA = "pinlater-data"
README = Path(__file__).parents[2] / "README.md"
PASSWORD = "correct horse"
ABSENT = ("no_admin_password", "no_http_interface")
"""What the log says of a server that lacks what a plain one has."""


def shell_at(folder: Path, server: RunningServer, host: str = "127.0.0.1") -> Shell:
    return Shell(folder, f"{host}:{server.port}")


def password_file(folder: Path) -> Path:
    return folder / DATA / PASSWORD_FILE


def refused_start(folder: Path) -> str:
    """What a server says that does not start."""
    ended = subprocess.run(
        [PROGRAM, "serve", "--port", "0", "--http", "none"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert ended.returncode == 1, ended
    return ended.stderr


def test_the_first_steps_of_an_operator_need_no_password_at_hand(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        shell = shell_at(tmp_path, server)
        shell("queue", "create", "mail")
        assert "incident" in shell("queue", "pause", "mail", "--why", "incident").out
        assert "100/s" in shell("queue", "set-rate", "mail", "100/s").out
        shell("queue", "resume", "mail")
        shell("queue", "drain", "mail", "--no-wait")
        shell("shard", "drain", "1", "--no-wait")
        shell("queue", "delete", "mail", "--yes")
        assert shell("queue", "list").out == ""
        password = password_file(tmp_path).read_text().strip()
        assert password not in json.dumps(server.events)
        assert [event["file"] for event in server.events if event["event"] == "admin_password_made"] == [
            str(Path(DATA, PASSWORD_FILE))
        ]
    assert stat.S_IMODE(password_file(tmp_path).stat().st_mode) == 0o600
    assert len(password) > 40


def test_the_drain_of_the_last_shard_ends_where_keys_live(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        shell = shell_at(tmp_path, server)
        shell("queue", "create", "mail")
        shell("job", "enqueue", "mail", "--body", "x", "--dedupe-key", "k")
        assert "no other shard takes new jobs" in shell("shard", "drain", "1", code=1).err


def _readme_lines(program: str) -> list[str]:
    text = README.read_text(encoding="utf-8")
    return re.findall(rf"^ +({program} .*?)(?: +#.*)?$", text, re.MULTILINE)


def _run_readme_commands(folder: Path, server: RunningServer, **variables: str) -> None:
    lines = _readme_lines("pinlater queue")
    assert [line.split()[2] for line in lines] == ["create", "stats", "set-rate", "pause", "delete"]
    address = f"127.0.0.1:{server.port}"
    environment = {"PATH": f"{Path(PROGRAM).parent}:/usr/bin:/bin", "PINLATER_SERVER": address, **variables}
    for line in lines:
        ended = subprocess.run(
            line, shell=True, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
        )
        assert ended.returncode == 0, ended


def test_the_commands_of_the_readme_work_as_they_stand_there(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        _run_readme_commands(tmp_path, server)


def test_the_commands_of_the_readme_work_with_redis_as_they_stand_there(tmp_path: Path, redis_places: Places) -> None:
    (hashing,) = re.findall(r"^ +\((umask 077; .*)\)$", README.read_text(encoding="utf-8"), re.MULTILINE)
    environment = {"PATH": f"{Path(PROGRAM).parent}:/usr/bin:/bin", "PINLATER_ADMIN_PASSWORD": PASSWORD}
    subprocess.run(hashing, shell=True, cwd=tmp_path, env=environment, check=True, timeout=300)
    (line,) = [each for each in _readme_lines("pinlater serve") if "redis" in each]
    words = line.replace("redis://127.0.0.1:6379/0", redis_places.fresh()).replace("127.0.0.1:9012", "127.0.0.1:0")
    with running(tmp_path, *words.split()[2:], PINLATER_ADMIN_PASSWORD=PASSWORD) as server:
        assert server.wait_for("api_ready")["dashboard"]
        _run_readme_commands(tmp_path, server, PINLATER_ADMIN_PASSWORD=PASSWORD)
        assert not [event for event in server.events if event["event"] in (*ABSENT, "unknown_variable")]


def test_a_server_that_is_not_plain_says_what_it_lacks(tmp_path: Path, redis_places: Places) -> None:
    with running(tmp_path, "--store", redis_places.fresh(), PINLATER_API="auto") as server:
        password, http = (server.wait_for(name) for name in ABSENT)
        assert "--admin-password-hash-file" in password["hint"]
        assert "--api 127.0.0.1:9012" in http["hint"]
        assert all("SQLite" in each["reason"] for each in (password, http))
        assert [event["event"] for event in server.events].count("no_http_interface") == 1


def test_a_server_that_others_reach_says_what_it_lacks(tmp_path: Path) -> None:
    with running(tmp_path, "--host", "0.0.0.0", PINLATER_API="auto") as server:
        assert all("0.0.0.0" in server.wait_for(name)["reason"] for name in ABSENT)


def test_who_says_what_is_wanted_is_told_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "rules.toml"
    rules.write_text('[[rules]]\nwho = ["anonymous"]\nroles = ["admin"]\n')
    with running(tmp_path, "--host", "0.0.0.0", "--api", "none", "--rules", str(rules)) as server:
        assert server.port
        assert not [event for event in server.events if event["event"] in ABSENT]


def test_a_terminal_is_asked_for_no_password_that_is_in_the_file(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        with Client(f"127.0.0.1:{server.port}") as client:
            client.create_queue("mail")
        terminal = Terminal(tmp_path, f"localhost:{server.port}", "queue", "pause", "mail")
        assert terminal.ended() == 0
        assert "password" not in terminal.shown


def test_it_stays_the_same_until_it_is_deleted(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        shell_at(tmp_path, server)("queue", "create", "mail")
        first = password_file(tmp_path).read_text()
        server.send(signal.SIGHUP)
        server.wait_for("rolled")
        assert not [event for event in server.events if event["event"] == "configuration_changed"]
        shell_at(tmp_path, server)("queue", "pause", "mail")
    with running(tmp_path) as server:
        shell_at(tmp_path, server)("queue", "resume", "mail")
        assert password_file(tmp_path).read_text() == first
        password_file(tmp_path).unlink()
        shell_at(tmp_path, server)("queue", "pause", "mail", stdin=first)
    with running(tmp_path) as server:
        shell_at(tmp_path, server)("queue", "resume", "mail")
        assert password_file(tmp_path).read_text() != first
        assert (
            "wrong"
            in shell_at(tmp_path, server)("queue", "pause", "mail", PINLATER_ADMIN_PASSWORD=first.strip(), code=1).err
        )


def test_it_is_found_from_elsewhere(tmp_path: Path) -> None:
    (elsewhere := tmp_path / "elsewhere").mkdir()
    data = str(tmp_path / DATA)
    with running(tmp_path) as server:
        shell = shell_at(elsewhere, server)
        shell("queue", "create", "mail")
        missing = shell("queue", "pause", "mail", code=2).err
        assert "pinlater-data/admin-password: No such file" in missing
        assert "--data" in missing
        shell("queue", "pause", "mail", "--data", data)
        shell("queue", "resume", "mail", PINLATER_DATA=data)
        shell("queue", "pause", "mail", PINLATER_ADMIN_PASSWORD_FILE=f"{data}/{PASSWORD_FILE}")
        shell("queue", "resume", "mail", "--data", data, PINLATER_ADMIN_PASSWORD="void, as the option counts before")
        nowhere = shell("queue", "pause", "mail", "--data", "nowhere", code=2).err
        assert "nowhere/admin-password: No such file" in nowhere
        assert "loopback" in nowhere


@pytest.mark.parametrize("by", ["option", "variable", "folder"])
def test_what_is_in_a_file_is_sent_to_this_machine_alone(tmp_path: Path, by: str) -> None:
    with running(tmp_path) as server:
        shell = shell_at(tmp_path, server, host="0.0.0.0")  # which is no loopback address, and leads to one
        shell("queue", "create", "mail")
        file = str(password_file(tmp_path))
        result = {
            "option": lambda: shell("queue", "pause", "mail", "--data", DATA, code=2),
            "variable": lambda: shell("queue", "pause", "mail", code=2, PINLATER_ADMIN_PASSWORD_FILE=file),
            "folder": lambda: shell("queue", "pause", "mail", code=2),
        }[by]()
        assert "on this machine" in result.err
        shell("queue", "pause", "mail", PINLATER_ADMIN_PASSWORD=password_file(tmp_path).read_text().strip())


def test_a_file_that_others_can_read_is_believed_by_nobody(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        shell = shell_at(tmp_path, server)
        shell("queue", "create", "mail")
        password_file(tmp_path).chmod(0o640)
        refused = shell("queue", "pause", "mail", code=1).err
        assert "can be read by others (mode 0640)" in refused
        assert "remove it" in refused
        assert password_file(tmp_path).read_text().strip() not in refused
        server.send(signal.SIGHUP)
        assert "mode 0640" in server.wait_for("roll_refused")["reason"]
    assert "can be read by others (mode 0640)" in refused_start(tmp_path)
    password_file(tmp_path).unlink()
    with running(tmp_path) as server:
        shell_at(tmp_path, server)("queue", "pause", "mail")


def test_something_else_in_its_place_is_refused(tmp_path: Path) -> None:
    password_file(tmp_path).mkdir(parents=True)
    assert "no regular file; remove it" in refused_start(tmp_path)


def test_a_link_to_another_file_is_not_followed_by_the_server(tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    (tmp_path / "key").write_text("-----BEGIN KEY-----\n")
    (tmp_path / "key").chmod(0o600)
    password_file(tmp_path).symlink_to(tmp_path / "key")
    with running(tmp_path) as server:
        server.wait_for("no_admin_password")
        shell = shell_at(tmp_path, server)
        shell("queue", "create", "mail")
        assert "no admin password" in shell("queue", "pause", "mail", code=1).err


def test_a_configured_hash_counts_alone(tmp_path: Path) -> None:
    with running(tmp_path, "--admin-password-hash", hash_password("sesame")) as server:
        shell = shell_at(tmp_path, server)
        assert not password_file(tmp_path).exists()
        shell("queue", "create", "mail")
        shell("queue", "pause", "mail", stdin="sesame\n")
    with running(tmp_path) as server:
        assert server.port
        made = password_file(tmp_path).read_text()
    with running(tmp_path, "--admin-password-hash", hash_password("sesame")) as server:
        server.wait_for("admin_password_removed")
        shell = shell_at(tmp_path, server)
        assert not password_file(tmp_path).exists()
        shell("queue", "resume", "mail", stdin="sesame\n")
        shell("queue", "pause", "mail", stdin=made, code=1)


def test_a_password_that_a_person_put_into_the_file_is_kept_and_counts(tmp_path: Path) -> None:
    (tmp_path / DATA).mkdir()
    password_file(tmp_path).write_text("sesame\n")
    password_file(tmp_path).chmod(0o600)
    with running(tmp_path) as server:
        shell = shell_at(tmp_path, server)
        shell("queue", "create", "mail")
        shell("queue", "pause", "mail")
        shell("queue", "resume", "mail", PINLATER_ADMIN_PASSWORD="sesame")
    with running(tmp_path, "--admin-password-hash", hash_password("sesame")) as server:
        shell_at(tmp_path, server)("queue", "pause", "mail")
    assert password_file(tmp_path).read_text() == "sesame\n"


def test_a_server_that_others_can_reach_has_no_operator_by_itself(tmp_path: Path) -> None:
    with running(tmp_path, "--host", "0.0.0.0") as server:
        shell = shell_at(tmp_path, server)
        assert not password_file(tmp_path).exists()
        shell("queue", "create", "mail")
        told = shell("queue", "pause", "mail", stdin="anything\n", code=1).err
        assert "this server has no admin password" in told
        assert "--admin-password-hash" in told
        assert "loopback" in told


@pytest.mark.store("redis")
def test_a_server_on_another_store_has_no_operator_by_itself(tmp_path: Path) -> None:
    store = start_server("redis", durable=False)
    try:
        with running(tmp_path, "--store", store.url()) as server:
            assert not password_file(tmp_path).exists()
            shell = shell_at(tmp_path, server)
            shell("queue", "create", "mail")
            assert "no admin password" in shell("queue", "delete", "mail", "--yes", stdin="x\n", code=1).err
    finally:
        store.stop()


def test_a_copied_data_folder_has_the_same_operator(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        shell_at(tmp_path, server)("queue", "create", "mail")
    (other := tmp_path / "other").mkdir()
    shutil.copytree(tmp_path / DATA, other / DATA)
    with running(other) as server:
        shell_at(tmp_path, server)("queue", "pause", "mail")
        shell_at(other, server)("queue", "resume", "mail")
