"""The configuration: order of its sources, mistakes all at once, and what is printed of it."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from dataclasses import replace
from inspect import get_annotations, signature
from pathlib import Path
from typing import Any

import pytest

from pinlater.config import SETTINGS, Config, ConfigInvalid, Loaded, config_toml, docs_page, from_plain, load, to_plain
from pinlater.config.settings import STORE_NAME
from pinlater.config.stores import StoreMistake, checked_url
from pinlater.server.limits import ServerLimits
from pinlater.service.settings import ServiceSettings, queue_defaults
from pinlater.settings_map import body_settings, owner_bounds, server_limits, service_settings, use_limits
from pinlater.shard_factory import guard_settings, health_settings
from pinlater.shards.bulkhead import BulkheadSettings
from pinlater.shards.health import HealthSettings

ROOT = Path(__file__).parents[2]
REDIS = "1=redis://127.0.0.1:6379/0"


def mistakes_of(flags: dict[str, str | list[str]], environment: dict[str, str] | None = None) -> dict[str, str]:
    """Of a wrong configuration: each mistake's key and text."""
    with pytest.raises(ConfigInvalid) as caught:
        load(flags, environment or {})
    return {mistake.key: str(mistake) for mistake in caught.value.mistakes}


def in_file(tmp_path: Path, text: str) -> dict[str, str | list[str]]:
    path = tmp_path / "pinlater.toml"
    path.write_text(text)
    return {"config": str(path)}


def test_with_nothing_said_there_is_one_embedded_shard_and_one_process() -> None:
    config = load({}, {}).config
    assert (config.host, config.port, config.processes) == ("127.0.0.1", 9010, 1)
    assert [(store.id, store.url) for store in config.stores] == [("1", "sqlite:///pinlater-data/pinlater.db")]


def test_what_it_says_for_all_queues_counts_for_a_queue_for_which_nothing_is_set() -> None:
    said = {"claim-timeout": "7s", "succeeded-ttl": "8s", "failed-ttl": "9s", "max-body": "1000", "crash-budget": "10"}
    settings = queue_defaults(service_settings(load(said, {}).config))
    assert (settings.claim_timeout_ms, settings.succeeded_ttl_ms, settings.failed_ttl_ms) == (7_000, 8_000, 9_000)
    assert (settings.max_body_bytes, settings.crash_budget) == (1_000, 10)


def test_the_parts_of_a_server_have_what_is_configured() -> None:
    changed: dict[str, Any] = {"bodies": ("s3://bucket",), "admin_password_hash": "x", "max_peer_connections": 77}
    for number, setting in enumerate(SETTINGS):
        if isinstance(setting.default, int):
            changed[setting.field] = setting.default + 1000 * (number + 1)
    config = replace(Config(), **changed)
    makes: list[Callable[[Config], Any]] = [service_settings, use_limits, owner_bounds, server_limits, body_settings]
    parts = [make(config) for make in makes]
    own = {name for part in parts for name in get_annotations(type(part)) if getattr(part, name) == default(part, name)}
    bounds_of_code = {"max_source_chars", "page_jobs", "page_bytes", "running"}
    assert own == bounds_of_code | {"poll_min_ms", "poll_max_ms", "poll_subscribed_ms"}
    assert server_limits(config).drain_linger_s == config.drain_linger_ms / 1000


def test_parts_that_are_given_nothing_have_the_defaults_of_the_settings() -> None:
    config = Config()
    assert (service_settings(config), server_limits(config)) == (ServiceSettings(), ServerLimits())
    assert (guard_settings(config), health_settings(config)) == (BulkheadSettings(), HealthSettings())


def default(part: object, name: str) -> object:
    """What a part has where it is given nothing."""
    return signature(type(part)).parameters[name].default


def test_other_stores_get_a_process_per_core(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _pid: {0, 1, 2})
    assert load({"store": [REDIS]}, {}).config.processes == 3


def test_a_flag_counts_before_a_variable_before_the_file_before_the_default(tmp_path: Path) -> None:
    flags = in_file(tmp_path, 'port = 1\nhost = "file"\nclaim-timeout = "7s"\n')
    environment = {"PINLATER_PORT": "2", "PINLATER_HOST": "variable"}
    loaded = load({**flags, "port": "3"}, environment)
    config = loaded.config
    assert (config.port, config.host, config.claim_timeout_ms, config.priorities) == (3, "variable", 7000, 3)
    origins = [loaded.origins[name] for name in ("port", "host", "claim-timeout", "priorities")]
    assert origins == ["--port", "PINLATER_HOST", flags["config"], "default"]


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_every_setting_is_a_flag_a_variable_and_a_key(setting, tmp_path: Path) -> None:
    literal = setting.kind.toml(setting.default)
    written = tomllib.loads(f"key = {literal}")["key"]
    text = written if isinstance(written, list) else str(written)
    flagged = load({setting.name: text}, {})
    assert flagged.origins[setting.name] == f"--{setting.name}"
    if written not in ("", []):
        environment = {setting.variable: str(written)}
        assert load({}, environment).origins[setting.name] == setting.variable
    filed = load(in_file(tmp_path, f"{setting.name} = {literal}\n"), {})
    assert filed.origins[setting.name].endswith("pinlater.toml")
    assert flagged.config == filed.config == load({}, {}).config


def test_all_mistakes_are_told_at_once(tmp_path: Path) -> None:
    flags = in_file(
        tmp_path, 'prot = 9010\nmax-body = "1MB"\n[[store]]\nid = "a-b"\nurl = "postgres://x"\nread-only = 1\n'
    )
    mistakes = mistakes_of({**flags, "port": "99999"}, {"PINLATER_CLAIM_TIMEOUT": "5"})
    assert set(mistakes) == {
        "prot", "max-body", "store.id", "store.url", "store.read-only", "port", "claim-timeout",
    }  # fmt: skip
    assert "did you mean port?" in mistakes["prot"]
    assert "'99999' (from --port); allowed: 0 to 65535" in mistakes["port"]
    assert "from PINLATER_CLAIM_TIMEOUT" in mistakes["claim-timeout"]
    assert "pinlater.toml" in mistakes["max-body"]


def test_several_processes_on_an_embedded_store_are_a_mistake() -> None:
    assert "embedded in one process" in mistakes_of({"processes": "2"})["processes"]


def test_values_that_contradict_each_other() -> None:
    flags = {"claim-timeout": "2h", "max-claim-timeout": "1h", "max-body": "10MiB", "max-buffered": "1MiB"}
    mistakes = mistakes_of({**flags, "max-container": "100", "max-jobs": "101"})
    assert set(mistakes) == {"claim-timeout", "max-body", "max-jobs"}
    assert "claim-timeout = '2h' (from --claim-timeout); allowed: at most max-claim-timeout, 1h" in mistakes.values()


def test_a_default_gives_way_to_a_bound_that_was_written() -> None:
    config = load({"max-buffered": "1MiB", "max-claim-timeout": "10s", "max-container": "100"}, {}).config
    assert (config.max_frame_bytes, config.max_body_bytes) == (2**20, 2**19)
    assert (config.claim_timeout_ms, config.max_jobs) == (10_000, 100)


def test_what_depends_on_the_machine_is_printed_as_it_was_written() -> None:
    assert 'processes = "auto"' in config_toml(load({"store": ["redis://127.0.0.1/0"]}, {}))


def test_a_file_that_cannot_be_read_is_a_mistake(tmp_path: Path) -> None:
    assert "No such file" in mistakes_of({"config": str(tmp_path / "none.toml")})["config"]
    assert "TOML" in mistakes_of(in_file(tmp_path, "port = \n"))["config"]


def test_variables_that_are_no_settings_are_noticed_but_those_of_clients_are_not() -> None:
    clients = {f"PINLATER_{name}": "x" for name in ("SERVER", "CLUSTER", "CLUSTERS", "ADMIN_PASSWORD")}
    loaded = load({}, {"PINLATER_PROT": "1", "HOME": "/", **clients})
    assert loaded.unknown_variables == ["PINLATER_PROT"]


# -- stores ------------------------------------------------------------------------------------------------------------


def test_stores_in_a_flag_a_variable_and_a_file_are_the_same(tmp_path: Path) -> None:
    second = "redis://127.0.0.1:6380/0"
    flagged = load({"store": [REDIS, second]}, {}).config.stores
    assert flagged == load({}, {"PINLATER_STORE": f"{REDIS}, {second}"}).config.stores
    assert flagged == load(in_file(tmp_path, f'store = ["{REDIS}", "{second}"]'), {}).config.stores
    tables = f'[[store]]\nid = "1"\nurl = "{REDIS[2:]}"\n[[store]]\nurl = "{second}"\n'
    assert flagged == load(in_file(tmp_path, tables), {}).config.stores
    assert [store.id for store in flagged] == ["1", ""]


def test_dequeue_only_by_flag_and_by_table(tmp_path: Path) -> None:
    file = in_file(tmp_path, f'[[store]]\nid = "1"\nurl = "{REDIS[2:]}"\ndequeue-only = true\n')
    assert load(file, {}).config.stores[0].dequeue_only
    assert load({"store": [REDIS], "dequeue-only": ["1"]}, {}).config.stores[0].dequeue_only
    assert "ids of the stores: 1" in mistakes_of({"store": [REDIS], "dequeue-only": ["2"]})["dequeue-only"]


@pytest.mark.parametrize(
    "store",
    [
        "redis:/127.0.0.1", "a-b=redis://x", "postgres://x/y", "1=", "", "redis://", "redis://x:port/0", "sqlite:///",
        "sqlite://host/path", "sqlite:///:memory:", "mysql+pymysql://host", "1=2=redis://x", "redis://:***@x/0",
    ],
)  # fmt: skip
def test_what_is_no_store_is_a_mistake(store: str) -> None:
    assert any(key.startswith(STORE_NAME) for key in mistakes_of({"store": [store]}))


@pytest.mark.parametrize("stores", [["1=redis://a", "1=redis://b"], ["1=redis://a", "2=redis://a"]])
def test_one_id_for_two_stores_or_one_store_twice_is_a_mistake(stores: list[str]) -> None:
    assert len(mistakes_of({"store": stores})) == 1


def test_a_password_shows_in_no_mistake() -> None:
    mistakes = mistakes_of(
        {"store": ["1=redis://u:geheim@x:y/0", "postgres://u:geheim@h/d"], "admin-password-hash": "geheim"}
    )
    assert len(mistakes) == 2
    assert "geheim" not in str(mistakes)


# -- printing ----------------------------------------------------------------------------------------------------------


def reread(text: str, tmp_path: Path) -> Loaded:
    return load(in_file(tmp_path, text), {})


def test_the_printed_configuration_is_a_file_that_says_the_same(tmp_path: Path) -> None:
    flags = {"store": ["1=redis://u:pw@h/0", "2=redis://h2"], "dequeue-only": ["2"], "failed-ttl": "36h", "port": "0"}
    loaded = load(flags, {})
    again = reread(config_toml(loaded, show_secrets=True), tmp_path)
    assert again.config == loaded.config


def test_secrets_are_masked_and_a_masked_one_is_not_taken_for_a_password(tmp_path: Path) -> None:
    printed = config_toml(load({"store": ["1=redis://u:geheim@h/0"]}, {}))
    assert "geheim" not in printed
    assert "--show-secrets" in printed
    with pytest.raises(ConfigInvalid, match="not \\*\\*\\*"):
        reread(printed, tmp_path)


def test_a_worker_process_is_told_the_same_configuration() -> None:
    config = load({"store": [REDIS], "dequeue-only": ["1"]}, {}).config
    assert from_plain(json.loads(json.dumps(to_plain(config)))) == config


def test_the_page_on_the_configuration_is_current() -> None:
    assert (ROOT / "docs" / "configuration.md").read_text() == docs_page(), (
        "write it anew: python -m pinlater.config > docs/configuration.md"
    )


@pytest.mark.parametrize("name", ["sqlite", "redis", "redis-sentinel", "redis-cluster", "mysql", "postgresql"])
def test_the_files_in_conf_have_no_mistakes(name: str) -> None:
    loaded = load({"config": str(ROOT / "conf" / f"{name}.toml")}, {})
    assert loaded.config.stores[0].url.startswith(name.replace("-", "+"))


@pytest.mark.parametrize(
    ("url", "meant"),
    [("postgres://db/jobs", "postgresql+psycopg"), ("mysql://db/jobs", "mysql+pymysql"), ("reddis://h", "redis")],
)
def test_a_url_of_other_programs_is_refused_with_the_one_that_is_meant(url: str, meant: str) -> None:
    with pytest.raises(StoreMistake) as mistake:
        checked_url(url)
    assert f"(did you mean {meant}?)" in mistake.value.allowed
