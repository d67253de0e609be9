"""Secrets in files: no process of a server shows one, and a server whose command line has one says what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pinlater.config import ConfigInvalid, config_toml, keep_secrets, load
from pinlater.data_folder.password import hash_password
from tests.server.commands import Shell
from tests.server.planted import family
from tests.server.running import BY_EXEC, running
from tests.stores.process import free_port

MARK = "planted-5ecret"
CALLBACK = f"{MARK}-of-callbacks"
HASH = hash_password(MARK)


def secrets(port: int) -> dict[str, str]:
    """What each setting says, with a secret in it; nothing listens at the port."""
    return {
        "store": f"1=mysql+pymysql://pinlater:{MARK}@127.0.0.1:{port}/jobs\n2=sqlite:///jobs.db",
        "admin-password-hash": HASH,
        "flows": f"postgresql+psycopg://pinlater:{MARK}@127.0.0.1:{port}/flows",
        "flow-callback-secret": CALLBACK,
        "bodies": f"s3://bodies?endpoint=http://127.0.0.1:{port}&region=x&access_key_id=a&secret_access_key={MARK}",
    }


def written(folder: Path, texts: dict[str, str]) -> list[str]:
    """The flags that name a file for each."""
    flags = []
    for name, text in texts.items():
        path = folder / f"{name}.secret"
        path.write_text(f"{text}\n")
        path.chmod(0o600)
        flags += [f"--{name}-file", path.name]
    return flags


def test_no_process_of_a_whole_server_shows_a_secret_that_a_file_has(tmp_path: Path) -> None:
    flags = written(tmp_path, secrets(free_port()))
    with running(tmp_path, *flags, "--api", "127.0.0.1:0", "--overflow", "10MiB", before=BY_EXEC) as server:
        server.wait_for("api_ready")
        server.wait_for("overflow_owned")
        pids = family(server.process.pid)
        assert len(pids) >= 3
        for pid in pids:
            for name in ("cmdline", "environ"):
                shown = Path(f"/proc/{pid}/{name}").read_text(errors="replace")
                assert MARK not in shown
                assert HASH.split(":")[-1] not in shown
        settings = Shell(tmp_path, f"127.0.0.1:{server.port}")
        settings("queue", "create", "mail")
        settings("queue", "pause", "mail", PINLATER_ADMIN_PASSWORD=MARK)
        server.stop()
    assert "password_in_process_list" not in {event["event"] for event in server.events}
    assert MARK not in str(server.events)


def test_each_secret_on_the_command_line_is_warned_of_with_the_file_to_use(tmp_path: Path) -> None:
    texts = secrets(free_port())
    flags = [part for name, text in texts.items() for line in text.split("\n") for part in (f"--{name}", line)]
    with running(tmp_path, *flags) as server:
        assert server.port
        server.stop()
    warned = {each["flag"]: each["hint"] for each in server.events if each["event"] == "password_in_process_list"}
    assert set(warned) == {f"--{name}" for name in texts}
    for flag, hint in warned.items():
        assert f"{flag}-file FILE" in hint
    assert MARK not in str(server.events)


@pytest.mark.parametrize("way", ["flag", "variable", "file"])
def test_files_are_read_whoever_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    monkeypatch.chdir(tmp_path)
    texts = secrets(1)
    flags = written(tmp_path, texts)
    files = {name.removeprefix("--"): file for name, file in zip(flags[::2], flags[1::2], strict=True)}
    if way == "flag":
        loaded = load(files, {})
    elif way == "variable":
        loaded = load({}, {f"PINLATER_{name.replace('-', '_').upper()}": file for name, file in files.items()})
    else:
        (tmp_path / "all.toml").write_text("".join(f'{name} = "{file}"\n' for name, file in files.items()))
        loaded = load({"config": "all.toml"}, {})
    config = loaded.config
    assert not loaded.unknown_variables
    assert [store.id for store in config.stores] == ["1", "2"]
    assert (config.admin_password_hash, config.flow_callback_secret) == (HASH, CALLBACK)
    assert (config.flows, list(config.bodies)) == (texts["flows"], [texts["bodies"]])
    printed = config_toml(loaded)
    assert MARK not in printed
    assert HASH not in printed
    assert MARK in config_toml(loaded, show_secrets=True)


def test_what_counts_first_counts_also_where_a_file_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, {"flow-callback-secret": CALLBACK})
    file = {"flow-callback-secret-file": "flow-callback-secret.secret"}
    assert load(file, {"PINLATER_FLOW_CALLBACK_SECRET": "x" * 16}).config.flow_callback_secret == CALLBACK
    over = load(
        {"flow-callback-secret": "x" * 16}, {"PINLATER_FLOW_CALLBACK_SECRET_FILE": file["flow-callback-secret-file"]}
    )
    assert over.config.flow_callback_secret == "x" * 16


@pytest.mark.parametrize(
    ("content", "mode", "why"),
    [
        pytest.param(CALLBACK, 0o640, "others can read it", id="open"),
        pytest.param("", 0o600, "one line", id="empty"),
        pytest.param(f"{CALLBACK}\n{CALLBACK}", 0o600, "one line", id="two lines"),
        pytest.param(f"{MARK} and spaces", 0o600, "16 to 500 characters", id="no secret"),
        pytest.param(None, 0, "No such file", id="none"),
    ],
)
def test_a_file_that_cannot_be_is_refused_by_name_and_its_content_is_not_shown(
    tmp_path: Path, content: str | None, mode: int, why: str
) -> None:
    path = tmp_path / "callback.secret"
    if content is not None:
        path.write_text(content)
        path.chmod(mode)
    flags = {"flow-callback-secret-file": str(path)}
    keep_secrets(flags, {})
    with pytest.raises(ConfigInvalid, match=re.escape(why)) as refused:
        load(flags, {})
    assert "flow-callback-secret" in str(refused.value)
    assert MARK not in str(refused.value)


def test_a_setting_and_its_file_in_one_place_are_a_mistake(tmp_path: Path) -> None:
    written(tmp_path, {"flows": "sqlite"})
    with pytest.raises(ConfigInvalid, match="one of it and flows"):
        load({"flows": "sqlite", "flows-file": str(tmp_path / "flows.secret")}, {})
