"""Where the token of a client comes from, who may read it there, and that nothing shows it."""

from __future__ import annotations

import asyncio
import gc
import logging
from functools import partial
from pathlib import Path

import msgspec
import pytest

from pinlater import AsyncClient, Client, RequestContext
from pinlater.client.client_tls import ClientTls, Tls
from pinlater.client.token import CallerContext, Token, target_token
from pinlater.data_folder.password import PasswordFileUnsafe, read_password_file
from pinlater.redaction import redact
from pinlater_workers import App
from pinlater_workers.app.settings import read_file
from pinlater_workers.errors import ConfigurationError
from pinlater_workers.heartbeat.messages import Begin, read_by_process, written

GIVEN, OTHER, THIRD = (f"plt_{letter * 43}" for letter in "abc")


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("SERVER", "CLUSTER", "CLUSTERS", "TOKEN", "TOKEN_FILE", "OPEN_SECRETS"):
        monkeypatch.delenv(f"PINLATER_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))


def private(path: Path, text: str) -> Path:
    path.touch(0o600)
    path.chmod(0o600)
    path.write_text(text)
    return path


def clusters(folder: Path, said: str) -> Path:
    return private(folder / "clusters.toml", f'[clusters.mail]\nservers = ["a:1"]\n{said}\n')


def found(token: str | Path | Token | None = None, cluster: str | None = None, file: Path | None = None) -> str | None:
    known = target_token(token, [], cluster, file)
    return None if known is None else known.read()


def test_what_is_given_counts_before_the_cluster_and_this_before_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found() is None
    monkeypatch.setenv("PINLATER_TOKEN", THIRD)
    file = clusters(tmp_path, f'token = "{OTHER}"')
    assert found() == THIRD
    assert found(cluster="mail", file=file) == OTHER
    assert found(GIVEN, "mail", file) == GIVEN
    assert found(private(tmp_path / "given", f"{GIVEN}\nand more\n"), "mail", file) == GIVEN
    assert found("", "mail", file) is None


def test_the_environment_names_a_token_or_a_file_and_not_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(tmp_path / "me.token", f"{OTHER}\r\n")
    monkeypatch.setenv("PINLATER_TOKEN_FILE", "~/me.token")
    assert found() == OTHER
    monkeypatch.setenv("PINLATER_TOKEN", GIVEN)
    with pytest.raises(ValueError, match=r"both set"):
        found()


def test_a_file_that_clusters_toml_names_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    private(tmp_path / "conf/mail.token", GIVEN)
    file = clusters(tmp_path / "conf", 'token_file = "mail.token"')
    file.chmod(0o644)
    assert found(cluster="mail", file=file) == GIVEN


@pytest.mark.parametrize("said", ["token = 7", 'token = ""', f'token = "{GIVEN}"\ntoken_file = "x"', "token_file = []"])
def test_what_else_clusters_toml_may_say_is_refused_without_a_word_of_it(tmp_path: Path, said: str) -> None:
    with pytest.raises(ValueError, match=r"cluster 'mail' in .* a text as token, or as token_file") as refused:
        found(cluster="mail", file=clusters(tmp_path, said))
    assert GIVEN not in str(refused.value)


def test_a_file_that_others_may_read_is_refused_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = private(tmp_path / "me.token", GIVEN)
    for mode in (0o640, 0o604, 0o620):
        token.chmod(mode)
        with pytest.raises(ValueError, match=f"mode {mode:04o}.*chmod 600"):
            found(token)
    file = clusters(tmp_path, f'token = "{GIVEN}"')
    file.chmod(0o644)
    with pytest.raises(ValueError, match=r"clusters.toml has a secret, and others can read it"):
        found(cluster="mail", file=file)
    monkeypatch.setenv("PINLATER_OPEN_SECRETS", "allow")
    assert found(token) == found(cluster="mail", file=file) == GIVEN


def test_what_is_no_token_may_be_another_secret_and_is_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "open sesame"
    with pytest.raises(ValueError, match=r"token= holds no token; allowed") as given:
        AsyncClient("a:1", token=secret)
    file = private(tmp_path / "me.token", secret)
    with pytest.raises(ValueError, match=r"me.token holds no token") as of_file:
        AsyncClient("a:1", token=file)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match=r"me.token holds no token"):
        AsyncClient("a:1", token=file)
    with pytest.raises(ValueError, match=r"none.token: No such file"):
        AsyncClient("a:1", token=tmp_path / "none.token")
    monkeypatch.setenv("PINLATER_TOKEN", secret)
    with pytest.raises(ValueError, match=r"PINLATER_TOKEN holds no token") as of_environment:
        Client("a:1")
    assert not any(secret in str(each.value) for each in (given, of_file, of_environment))


def test_a_token_is_exchanged_in_its_file_and_calls_under_way_go_again_with_the_new_one(tmp_path: Path) -> None:
    file = private(tmp_path / "me.token", GIVEN)
    caller = CallerContext("me", Token(file=str(file)))
    first = caller.context
    assert first.token == GIVEN
    assert caller.renewed(first) is None
    file.write_text(OTHER)
    second = caller.renewed(first)
    assert second == caller.context == caller.renewed(first) == RequestContext("me", token=OTHER)
    assert second is not None
    assert caller.renewed(second) is None
    file.unlink()
    assert caller.renewed(second) is None
    file.write_text(THIRD)
    file.chmod(0o644)
    assert caller.renewed(second) is None
    file.chmod(0o600)
    assert caller.renewed(caller.of(RequestContext("for whom"))) == RequestContext("for whom", token=THIRD)
    assert caller.context.token == THIRD


def test_a_given_context_has_the_token_of_the_client_unless_it_says_another_or_none(tmp_path: Path) -> None:
    file = private(tmp_path / "me.token", GIVEN)
    caller = CallerContext("me", Token(file=str(file)))
    assert caller.of(RequestContext("you")) == RequestContext("you", token=GIVEN)
    assert caller.of(RequestContext("you", token=THIRD)).token == THIRD
    assert caller.of(RequestContext("you", token="")).token is None
    assert CallerContext("me", None).of(RequestContext("you", token="")).token is None
    file.write_text(OTHER)
    for other in (RequestContext("you", token=THIRD), caller.of(RequestContext("you", token=""))):
        assert caller.renewed(other) is None


def test_no_repr_shows_a_token(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = private(tmp_path / "me.token", OTHER)
    app = App(servers=["a:1"], token=GIVEN)
    client = AsyncClient("a:1", token=file)
    for_threads = Client("a:1", token=GIVEN)
    begin = Begin(["a:1"], "me", 1.0, 1.0, [], 1.0, token=app.token)
    shown = [RequestContext("me", token=GIVEN), Token(GIVEN), begin, app, app.token, client, vars(client), vars(app)]
    with caplog.at_level(logging.DEBUG):
        logging.getLogger("x").warning("%s %r", shown, shown)
    assert GIVEN not in caplog.text
    held: list[object] = [for_threads]
    for _ in range(3):
        held += gc.get_referents(*held)
    partials = [each for each in held if isinstance(each, partial)]
    assert partials
    assert GIVEN not in repr(partials)
    for_threads.close()
    assert OTHER not in caplog.text
    assert redact(f"header {OTHER}!") == "header ***!"
    assert read_by_process(written(begin)[4:]) == begin
    assert msgspec.to_builtins(begin)["token"]["text"] == GIVEN


def test_an_app_has_the_token_of_its_file_or_of_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private(tmp_path / "worker.token", OTHER)
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('servers = ["a:1"]\ntoken_file = "worker.token"\n')
    app = App(token=GIVEN)
    assert app.token == Token(GIVEN)
    app.follow(read_file(jobs))
    assert app.token == Token(OTHER, str(tmp_path / "worker.token"))
    app.use(token=GIVEN)
    assert app.token == Token(GIVEN)
    (tmp_path / "worker.token").chmod(0o644)
    with pytest.raises(ConfigurationError, match=r"others can read it"):
        _ = App(jobs).token
    monkeypatch.setenv("PINLATER_TOKEN", "nothing")
    with pytest.raises(ConfigurationError, match=r"PINLATER_TOKEN holds no token"):
        asyncio.run(made(App()))


async def made(app: App) -> AsyncClient:
    return app.async_client()


def test_a_private_key_that_others_may_read_is_refused_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    key = private(tmp_path / "me.key", "no key")
    tls = ClientTls(Tls(cert=str(key), key=str(key)))
    key.chmod(0o644)
    with pytest.raises(OSError, match=r"me.key has a secret, and others can read it \(mode 0644\): chmod 600"):
        tls.context()
    monkeypatch.setenv("PINLATER_OPEN_SECRETS", "allow")
    with pytest.raises(OSError, match="are no certificate with its key"):
        tls.context()


def test_the_admin_password_in_a_file_that_others_may_read_is_refused_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = private(tmp_path / "admin-password", "sesame\n")
    file.chmod(0o644)
    with pytest.raises(PasswordFileUnsafe):
        read_password_file(file)
    monkeypatch.setenv("PINLATER_OPEN_SECRETS", "allow")
    assert read_password_file(file) == "sesame"
    with pytest.raises(PasswordFileUnsafe):  # a server makes its own
        read_password_file(file, is_server=True)
