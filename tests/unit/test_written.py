"""Values with what shells, editors, secrets and clusters put around them, by each way by which they arrive."""

from __future__ import annotations

import codecs
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from pinlater.access.rules import parse_rules
from pinlater.cli.flow_files import read_flow
from pinlater.client.addresses import cluster_servers, target_servers
from pinlater.client.client_tls import Tls
from pinlater.client.token import Token, target_token
from pinlater.config.loader import ConfigInvalid, load
from pinlater.data_folder.password import read_password_file
from pinlater.queues.file import read_layers
from pinlater.written import secret_line, stripped, toml_of
from pinlater_workers.app.settings import read_file
from pinlater_workers.errors import ConfigurationError

AROUND = ["{}\n", "{}\r\n", "\ufeff{}\r\n", "  {}\t", "\u00a0{}\u00a0", "\u200b{}\u200b", "{}\u2060 \n\n"]
QUOTED = ['"{}"', "'{}'", '"{}"\r\n', '" {} "']
TOKEN = "plt_" + "a" * 43


@pytest.mark.parametrize("form", [*AROUND, *QUOTED])
def test_variables_mean_what_is_in_them(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "PINLATER_PORT": form.format("9123"),
        "PINLATER_STORE": form.format("1=redis://127.0.0.1/0, 2=redis://127.0.0.1/1"),
        "PINLATER_LOG_LEVEL": form.format("debug"),
        "PINLATER_CLAIM_TIMEOUT": form.format("90s"),
    }
    config = load({}, environment).config
    assert (config.port, config.log_level, config.claim_timeout_ms) == (9123, "debug", 90_000)
    assert [store.url for store in config.stores] == ["redis://127.0.0.1/0", "redis://127.0.0.1/1"]
    for name, value in (("SERVER", "queue-1:9010"), ("TOKEN", TOKEN), ("TLS", "on"), ("TLS_SERVER_NAME", "queue")):
        monkeypatch.setenv(f"PINLATER_{name}", form.format(value))
    assert [str(each) for each in target_servers()] == ["queue-1:9010"]
    token, tls = target_token(None, [], None), Tls.from_environment()
    assert token is not None
    assert tls is not None
    assert (token.read(), tls.server_name) == (TOKEN, "queue")


@pytest.mark.parametrize("form", AROUND)
def test_flags_and_files_mean_what_is_in_them(form: str, tmp_path: Path) -> None:
    config = load({"port": form.format("9123"), "store": [form.format("redis://127.0.0.1/0")]}, {}).config
    assert (config.port, config.stores[0].url) == (9123, "redis://127.0.0.1/0")
    file = tmp_path / "secret"
    file.touch(0o600)
    file.write_text(form.format(TOKEN), encoding="utf-8")
    assert Token.of(file) == Token(file=str(file))
    assert Token(file=str(file)).read() == TOKEN


@pytest.mark.parametrize("text", ["", " ", "\n", "\ufeff", "\u00a0", '""', "''\r\n"])
def test_a_variable_with_nothing_in_it_is_not_set(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = load({}, {"PINLATER_PORT": text, "PINLATER_STORE": text, "PINLATER_CONFIG": text}).config
    assert config == load({}, {}).config
    for name in ("SERVER", "CLUSTER", "TOKEN", "TOKEN_FILE", "TLS", "TLS_CA"):
        monkeypatch.setenv(f"PINLATER_{name}", text)
    assert [str(each) for each in target_servers()] == ["127.0.0.1:9010"]
    assert target_token(None, [], None) is None
    assert Tls.from_environment() is None


def test_variables_of_kubernetes_services_and_docker_links_say_nothing() -> None:
    environment = {
        "PINLATER_SERVICE_HOST": "10.0.0.1",
        "PINLATER_SERVICE_PORT": "9010",
        "PINLATER_SERVICE_PORT_HTTP": "9012",
        "PINLATER_PORT": "tcp://10.0.0.1:9010",
        "PINLATER_PORT_9010_TCP": "tcp://10.0.0.1:9010",
        "PINLATER_PORT_9010_TCP_PROTO": "tcp",
        "PINLATER_PORT_9010_TCP_PORT": "9010",
        "PINLATER_PORT_9010_TCP_ADDR": "10.0.0.1",
        "PINLATER_API_PORT": "tcp://10.0.0.2:9012",
        "PINLATER_PROT": "9010",
    }
    loaded = load({}, environment)
    assert loaded.config == load({}, {}).config
    assert loaded.unknown_variables == ["PINLATER_PROT"]
    assert load({"port": "9123"}, environment).config.port == 9123
    with pytest.raises(ConfigInvalid, match="PINLATER_PORT"):
        load({}, {"PINLATER_PORT": "nine"})


def a_cluster(file: Path) -> object:
    return cluster_servers("main", file)


def some_rules(file: Path) -> object:
    return parse_rules(file.read_bytes(), str(file))


READERS: list[tuple[Callable[[Path], object], str, type[Exception]]] = [
    (lambda file: load({"config": str(file)}, {}).config, "port = 9123\n", ConfigInvalid),
    (read_layers, "[defaults]\nmax_attempts = 3\n", ConfigInvalid),
    (some_rules, '[[rule]]\nfrom = ["10.0.0.0/8"]\nqueues = ["a"]\nactions = ["read"]\n', ConfigInvalid),
    (a_cluster, '[clusters]\nmain = ["queue-1:9010"]\n', ValueError),
    (lambda file: read_flow(file, None), '[[stage]]\nname = "a"\nqueue = "b"\n', click.UsageError),
    (lambda file: read_file(file), 'queues = ["a"]\n', ConfigurationError),
]


@pytest.mark.parametrize(("reader", "text", "refusal"), READERS, ids=range(len(READERS)))
def test_files_of_all_editors_are_read(
    reader: Callable[[Path], object], text: str, refusal: type[Exception], tmp_path: Path
) -> None:
    file = tmp_path / "file.toml"

    def read(content: bytes) -> object:
        file.write_bytes(content)
        try:
            return reader(file)
        except refusal as error:
            return str(error)

    plain = read(text.encode())
    assert read(codecs.BOM_UTF8 + text.encode()) == plain
    assert read(text.replace("\n", "\r\n").encode()) == plain
    assert read(codecs.BOM_UTF8 + text.replace("\n", "\r\n").encode().rstrip()) == plain
    assert "UTF-16" in str(read(text.encode("utf-16")))
    assert "no-break space" in str(read(text.replace("=", "\u00a0=", 1).encode()))
    assert "typographic quote" in str(read(f"{text}more = \u201ca\u201d\n".encode()))


def test_the_tables_of_a_file_keep_what_is_in_their_texts() -> None:
    assert toml_of(codecs.BOM_UTF8 + 'a = "\u00a0b"\r\n'.encode()) == {"a": "\u00a0b"}


@pytest.mark.parametrize("form", ["{}", "{}\n", "{}\r\n", "\ufeff{}\r\n", "{}\nmore\n", "{}\r\nmore\r\n"])
def test_a_password_file_has_the_password_alone(form: str, tmp_path: Path) -> None:
    for password in ("sesame", " with \u00a0 spaces ", '"quoted"'):
        file = tmp_path / "password"
        file.touch(0o600)
        file.write_bytes(form.format(password).encode())
        assert read_password_file(file) == password
        assert secret_line(form.format(password).partition("\n")[0]) == password


def test_what_is_inside_a_text_stays() -> None:
    assert stripped("\ufeff a \u00a0 b\n") == "a \u00a0 b"


LISTS = """
import sys
from pinlater.backends.redis.address import parse_address
from pinlater.config.loader import load
for url, nodes in (
    ("redis+sentinel://h1:26379,[::1]:26380,[fd00::2]/jobs/2", None),
    ("rediss+sentinel://app:pw@h1,[::1]/jobs", None),
    ("redis+cluster://127.0.0.1:7000,[::1]:7001/?shards=2", ("127.0.0.1", "::1")),
    ("redis+cluster://[::1]:7000,h2,[::2]:7001/?shards=1&prefix=p", ("::1", "h2", "::2")),
):
    (store, *_) = load({"store": [url]}, {}).config.stores
    address = parse_address(store.url)
    print(address.shown)
    assert nodes is None or tuple(host for host, _ in address.nodes) == nodes
"""


def other_pythons() -> list[str]:
    """The one that runs this, and those of the system and of pyenv."""
    versions = Path.home() / ".pyenv/versions"
    candidates = [
        sys.executable,
        "/usr/bin/python3",
        "/usr/bin/python3.11",
        *map(str, versions.glob("3.1*/bin/python")),
    ]
    return [each for each in candidates if Path(each).exists()]


def test_ipv6_hosts_may_stand_anywhere_in_a_list(tmp_path: Path) -> None:
    """With each Python of this version that is there: some refuse brackets behind another host."""
    (tmp_path / "async_timeout.py").write_text("from asyncio import timeout")  # wanted by redis before Python 3.11.3
    packages = [str(tmp_path), str(Path.cwd()), *(each for each in sys.path if each.endswith("site-packages"))]
    tried = 0
    for python in other_pythons():
        version = subprocess.check_output([python, "-c", "import sys; print(sys.version_info[:2])"], text=True)
        if version.strip() != str(sys.version_info[:2]):
            continue  # the packages with compiled parts are of this version
        done = subprocess.run(
            [python, "-c", LISTS],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(packages)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, (python, done.stderr)
        assert "h1:26379,::1:26380,fd00::2:26379/jobs/2" in done.stdout.replace("[", "").replace("]", "")
        tried += 1
    assert tried
