"""Loading of a configuration: what was written, by source, becomes a checked `Config`, or a list of all mistakes.

Flags count before the environment, the environment before the file, the file before the defaults. Every mistake is
named at once, with its key, value, origin and what is allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pinlater.config.body_rules import SHARD, parse_rule, tier_urls
from pinlater.config.secret_files import Given, SecretFileInvalid, with_files_read
from pinlater.config.settings import (
    BY_NAME,
    CONFIG_NAME,
    ENVIRONMENT_PREFIX,
    FILE_SETTINGS,
    NAMES,
    SETTINGS,
    STORE_NAME,
    Config,
    Setting,
)
from pinlater.config.stores import (
    ALLOWED_ID,
    ALLOWED_STORE,
    ALLOWED_URL,
    SHARD_ID,
    StoreConfig,
    StoreMistake,
    checked_url,
    default_store,
    expanded,
    parse_store,
)
from pinlater.config.webhook_urls import webhook_target
from pinlater.near_names import meant_name
from pinlater.redaction import SECRETS, redact, redact_url, secrets_of_url
from pinlater.setting_kinds import Kind, Text
from pinlater.written import is_service_link, stripped, toml_of, variable

SHOWN_CHARS = 100


@dataclass(frozen=True, slots=True)
class Mistake:
    """One mistake. `origin` is the flag, the variable or the file that the value came from."""

    key: str
    value: object
    allowed: str
    origin: str

    def __str__(self) -> str:
        return f"{self.key} = {shown(self.value)} (from {self.origin}); allowed: {self.allowed}"


class ConfigInvalid(Exception):
    """The configuration cannot be used; `mistakes` holds everything that is wrong with it."""

    def __init__(self, mistakes: Sequence[Mistake]) -> None:
        super().__init__("\n".join(str(mistake) for mistake in mistakes))
        self.mistakes = mistakes


def shown(value: object) -> str:
    """A value for a message, without secrets, and cut where it is long."""
    text = redact(repr(value))
    return text if len(text) <= SHOWN_CHARS else text[:SHOWN_CHARS] + "…"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """What is allowed instead of an unknown name.

    >>> did_you_mean("prot", ["port", "host"])
    'a known key (did you mean port?)'
    """
    near = meant_name(name.replace("_", "-"), known)
    return f"a known key{near or ' (`pinlater serve --help` names all)'}"


_REPEATABLE = {setting.name for setting in SETTINGS if setting.kind.repeatable} | {STORE_NAME}
_REPEATABLE |= {file_name for file_name, name in FILE_SETTINGS.items() if name in _REPEATABLE}
_OF_CLIENTS = ("SERVER", "CLUSTER", "CLUSTERS", "ADMIN_PASSWORD", "ADMIN_PASSWORD_FILE")


HIDDEN = "…"
"""Stands for a value that may be a secret: that of a key we do not know, as `password`, may be one."""


def gather(
    flags: Mapping[str, str | Sequence[str]], environment: Mapping[str, str], *, reads_secrets: bool = True
) -> dict[str, Given]:
    """What was written for each setting, by the source that counts. ConfigInvalid: a file cannot be read."""
    sources = [_from_environment(environment), _from_flags(flags)]
    config = next((each[CONFIG_NAME] for each in reversed(sources) if CONFIG_NAME in each), None)
    if config is not None:
        sources.insert(0, _from_file(config))
    found: dict[str, Given] = {}
    try:
        for source in sources:
            found |= with_files_read(source, _REPEATABLE) if reads_secrets else source
    except SecretFileInvalid as invalid:
        mistake = Mistake(invalid.key, invalid.path, invalid.allowed, invalid.origin)
        raise ConfigInvalid([mistake]) from invalid
    found.pop(CONFIG_NAME, None)
    return found


def unknown_names(given: Mapping[str, Given]) -> list[Mistake]:
    """Keys of the file that are no settings."""
    return [
        Mistake(name, HIDDEN, did_you_mean(name, NAMES), each.origin)
        for name, each in given.items()
        if name not in BY_NAME and name != STORE_NAME
    ]


def unknown_variables(environment: Mapping[str, str]) -> list[str]:
    """Variables with our prefix that are no settings: worth a warning, since other programs may put some there."""
    known = {_variable(name) for name in NAMES} | {ENVIRONMENT_PREFIX + name for name in _OF_CLIENTS}
    return sorted(
        name
        for name, value in environment.items()
        if name.startswith(ENVIRONMENT_PREFIX) and name not in known and not is_service_link(name, value)
    )


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.replace("-", "_").upper()


def _from_flags(flags: Mapping[str, str | Sequence[str]]) -> dict[str, Given]:
    return {
        name: Given(_trimmed(value if isinstance(value, str) else list(value)), f"--{name}")
        for name, value in flags.items()
    }


def _from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """An empty variable counts as not set; in a list, commas part the texts."""
    given: dict[str, Given] = {}
    for name in NAMES:
        text = variable(_variable(name), environment)
        if text:
            parts = [part for part in map(stripped, text.split(",")) if part]
            given[name] = Given(parts if name in _REPEATABLE else text, _variable(name))
    return given


def _from_file(config: Given) -> dict[str, Given]:
    path = Path(str(config.value)).expanduser()
    try:
        content = toml_of(path.read_bytes())
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise ConfigInvalid([Mistake(CONFIG_NAME, str(path), allowed, config.origin)]) from error
    except ValueError as error:
        raise ConfigInvalid([Mistake(CONFIG_NAME, str(path), f"a TOML file ({error})", config.origin)]) from error
    return {name: Given(_trimmed(value), str(path)) for name, value in content.items()}


def _trimmed(value: Any) -> Any:
    """A value of a flag or of TOML, its texts without what is around them."""
    if isinstance(value, list):
        return [_trimmed(each) for each in value]
    if isinstance(value, dict):
        return {name: _trimmed(each) for name, each in value.items()}
    return stripped(value) if isinstance(value, str) else value


T = TypeVar("T")
DEFAULT = "default"
CONFIG_VARIABLE = f"{ENVIRONMENT_PREFIX}CONFIG"
_STORE_KEYS = ("id", "url", "dequeue-only")
HIDDEN_NAMES = ("admin-password-hash", "alarm-webhook", "alarm-webhook-secret", "flow-callback-secret")
"""Never shown, not even as a mistake: it is a secret itself."""

_BOUNDS: Sequence[tuple[str, str, Callable[[Config], int]]] = (
    ("claim-timeout", "max-claim-timeout", lambda config: config.max_claim_timeout_ms),
    ("max-frame", "max-buffered", lambda config: config.max_buffered_bytes),
    ("max-body", "half of max-frame", lambda config: config.max_frame_bytes // 2),
    ("max-unframed", "max-frame", lambda config: config.max_frame_bytes),
    ("max-jobs", "max-container", lambda config: config.max_container),
    ("max-jobs", "a tenth of max-steps", lambda config: config.max_steps // 10),  # six each; less in compact
    ("health-min-good", "health-window", lambda config: config.health_window),
)
"""Settings that are bounded by another one."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration, where each of its values came from, and variables that look like settings but are none.

    `as_written` leaves open what `config` has taken from this machine, so that it means the same on another one.
    """

    config: Config
    as_written: Config
    origins: Mapping[str, str]
    unknown_variables: Sequence[str]

    def has_secrets_from(self, path: Path) -> bool:
        """Whether this file has brought a secret, as a password of a store, or the hash of the admin password."""
        from_file = {name for name, origin in self.origins.items() if origin == str(path)}
        config = self.config
        urls = {STORE_NAME: [store.url for store in config.stores], "flows": [config.flows]}
        urls["bodies"] = [tier.url for tier in tier_urls(config.bodies)]
        return any(True for name in from_file for url in urls.get(name, ()) for _ in secrets_of_url(url)) or any(
            getattr(config, BY_NAME[name].field) for name in from_file.intersection(HIDDEN_NAMES)
        )


def load(flags: Mapping[str, str | Sequence[str]], environment: Mapping[str, str]) -> Loaded:
    """The configuration by flags, environment, file and defaults, in this order. ConfigInvalid, with all mistakes."""
    given = gather(flags, environment)
    mistakes = unknown_names(given)
    values = {setting.field: _value(setting, given, mistakes) for setting in SETTINGS}
    stores = _stores(given.get(STORE_NAME), mistakes)
    origins = {name: given[name].origin if name in given else DEFAULT for name in (*BY_NAME, STORE_NAME)}
    config = _with_defaults_in_bounds(Config(**values, stores=stores or (default_store(values["data"]),)), origins)
    if not any(mistake.key.startswith(STORE_NAME) for mistake in mistakes):
        mistakes += _mistakes_of_stores(config, origins)
    mistakes += _contradictions(config, origins)
    if mistakes:
        raise ConfigInvalid(mistakes)
    return Loaded(_resolved(config), config, origins, unknown_variables(environment))


def keep_secrets(flags: Mapping[str, str | Sequence[str]], environment: Mapping[str, str]) -> None:
    """Know what is written that must never be shown, before anything is said of it: of its mistakes, too."""
    try:
        given = gather(flags, environment)
    except ConfigInvalid:
        try:
            given = gather(flags, environment, reads_secrets=False)
        except ConfigInvalid:  # the file cannot be read
            others = _without_file(flags, CONFIG_NAME), _without_file(environment, CONFIG_VARIABLE)
            given = gather(*others, reads_secrets=False)
    for name, each in given.items():
        for text in _texts(each.value):
            SECRETS.keep(_secrets_of_hash(text) if name in HIDDEN_NAMES else secrets_of_url(text))


def secrets_of(config: Config) -> Iterator[str]:
    """What must never be shown of a configuration."""
    for store in config.stores:
        yield from secrets_of_url(store.url)
    yield from secrets_of_url(config.flows)
    for tier in tier_urls(config.bodies):
        yield from secrets_of_url(tier.url)
    yield from filter(None, (config.flow_callback_secret, config.alarm_webhook_secret))
    for receiver in config.alarm_webhook:
        yield webhook_target(receiver).url
    yield from _secrets_of_hash(config.admin_password_hash)


def _secrets_of_hash(text: str) -> Iterator[str]:
    """A hash of a password, or what was written in place of one, and the parts that are its own."""
    yield from (text, *text.split(":")[4:])


def _without_file(given: Mapping[str, T], name: str) -> dict[str, T]:
    return {each: value for each, value in given.items() if each != name}


def _texts(value: object) -> Iterator[str]:
    """All texts in a value of TOML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list | dict):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)


def _value(setting: Setting, given: Mapping[str, Given], mistakes: list[Mistake]) -> Any:
    """What was written, or the default, also in place of a mistake, so that all others are found too."""
    written = given.get(setting.name)
    if written is None:
        return setting.default
    try:
        return setting.kind.parse(written.value)
    except ValueError:
        value = HIDDEN if setting.name in HIDDEN_NAMES else written.value
        mistakes.append(Mistake(setting.name, value, setting.kind.allowed, written.origin))
        return setting.default


def _stores(given: Given | None, mistakes: list[Mistake]) -> tuple[StoreConfig, ...]:
    if given is None:
        return ()
    written = [given.value] if isinstance(given.value, str | dict) else given.value
    if not isinstance(written, list) or not written:
        mistakes.append(Mistake(STORE_NAME, given.value, f"a list of {ALLOWED_STORE}", given.origin))
        return ()
    stores = []
    for each in written:
        try:
            store = parse_store(each) if isinstance(each, str) else _store_table(each, given.origin, mistakes)
            stores += expanded(store)
        except StoreMistake as mistake:
            key = f"{STORE_NAME}.{mistake.part}" if mistake.part else STORE_NAME
            mistakes.append(Mistake(key, mistake.value, mistake.allowed, given.origin))
    return tuple(stores)


def _store_table(table: object, origin: str, mistakes: list[Mistake]) -> StoreConfig:
    if not isinstance(table, dict):
        raise StoreMistake("", table, ALLOWED_STORE)
    for key in table.keys() - set(_STORE_KEYS):
        mistakes.append(Mistake(f"{STORE_NAME}.{key}", HIDDEN, did_you_mean(key, _STORE_KEYS), origin))
    shard_id, url, dequeue_only = table.get("id", ""), table.get("url"), table.get("dequeue-only", False)
    if not isinstance(url, str):
        raise StoreMistake("url", url, ALLOWED_URL)
    try:
        shard_id and Text(SHARD_ID).parse(shard_id)
    except ValueError:
        mistakes.append(Mistake(f"{STORE_NAME}.id", shard_id, f"a text of {ALLOWED_ID}", origin))
        shard_id = ""
    if not isinstance(dequeue_only, bool):
        mistakes.append(Mistake(f"{STORE_NAME}.dequeue-only", dequeue_only, "true or false", origin))
    return StoreConfig(shard_id, checked_url(url), bool(dequeue_only))


def _mistakes_of_stores(config: Config, origins: Mapping[str, str]) -> list[Mistake]:
    mistakes = []
    ids = [store.id for store in config.stores if store.id]
    urls = [store.url for store in config.stores]
    for shard_id in dict.fromkeys(each for each in ids if ids.count(each) > 1):
        mistakes.append(Mistake("store.id", shard_id, "one store per id", origins[STORE_NAME]))
    for url in dict.fromkeys(each for each in urls if urls.count(each) > 1):
        mistakes.append(Mistake("store.url", redact_url(url), "each store once", origins[STORE_NAME]))
    if len(ids) == len(config.stores):
        for shard_id in config.dequeue_only:
            if shard_id not in ids:
                allowed = f"ids of the stores: {', '.join(ids)}"
                mistakes.append(Mistake("dequeue-only", shard_id, allowed, origins["dequeue-only"]))
    return mistakes


def _contradictions(config: Config, origins: Mapping[str, str]) -> list[Mistake]:
    """Values that are right alone, and wrong together."""
    mistakes = []
    if config.processes not in (None, 1) and any(store.embedded for store in config.stores):
        allowed = "1 with an SQLite store, which is embedded in one process (or stores of other kinds alone)"
        mistakes.append(Mistake("processes", config.processes, allowed, origins["processes"]))
    if not config.tls_cert:
        for name in ("tls-key", "tls-client-ca", "tls-ca", "tls-peers"):
            if getattr(config, BY_NAME[name].field):
                allowed = "nothing without tls-cert, the certificate that makes the port speak TLS"
                mistakes.append(Mistake(name, getattr(config, BY_NAME[name].field), allowed, origins[name]))
    mistakes += _mistakes_of_bodies(config, origins)
    for name, what, bound in _BOUNDS:
        value, most = getattr(config, BY_NAME[name].field), bound(config)
        if value > most:
            kind = BY_NAME[name].kind
            allowed = f"at most {what}, {_as_text(kind, most)}"
            if name == "max-body":
                allowed += f"; with a max-frame of {_as_text(kind, 2 * value)} it may be so large"
            mistakes.append(Mistake(name, _as_text(kind, value), allowed, origins[name]))
    return mistakes


def _mistakes_of_bodies(config: Config, origins: Mapping[str, str]) -> list[Mistake]:
    mistakes = []
    tiers = [tier.name for tier in tier_urls(config.bodies)]
    for name in dict.fromkeys(each for each in tiers if tiers.count(each) > 1 or each == SHARD):
        allowed = f"names that differ, and none of them {SHARD}: NAME=URL gives a tier its name"
        mistakes.append(Mistake("bodies", name, allowed, origins["bodies"]))
    for text in config.body_rules:
        if parse_rule(text).tier not in (*tiers, SHARD):
            allowed = (
                f"a rule for one of: {', '.join([*tiers, SHARD])}" if tiers else "nothing without bodies, the tiers"
            )
            mistakes.append(Mistake("body-rules", text, allowed, origins["body-rules"]))
    return mistakes


def _with_defaults_in_bounds(config: Config, origins: Mapping[str, str]) -> Config:
    """What was not written gives way to what was."""
    for name, _, bound in _BOUNDS:
        field, most = BY_NAME[name].field, bound(config)
        if origins[name] == DEFAULT and getattr(config, field) > most:
            changed: dict[str, Any] = {field: most}
            config = replace(config, **changed)
    return config


def _as_text(kind: Kind, value: object) -> str:
    return kind.toml(value).strip('"')


def _resolved(config: Config) -> Config:
    """What the configuration leaves to the machine and to the stores."""
    embedded = any(store.embedded for store in config.stores)
    cores = len(os.sched_getaffinity(0))
    stores = tuple(
        replace(each, dequeue_only=each.dequeue_only or each.id in config.dequeue_only) for each in config.stores
    )
    return replace(config, stores=stores, processes=config.processes or (1 if embedded else cores))
