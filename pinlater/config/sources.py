"""Where values come from: flags before the environment before the file. Nothing is checked here but the names."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pinlater.config.mistakes import ConfigInvalid, Mistake, did_you_mean
from pinlater.config.settings import BY_NAME, CONFIG_NAME, ENVIRONMENT_PREFIX, NAMES, SETTINGS, STORE_NAME

_REPEATABLE = {setting.name for setting in SETTINGS if setting.kind.repeatable} | {STORE_NAME}
_OF_CLIENTS = ("SERVER", "CLUSTER", "CLUSTERS", "ADMIN_PASSWORD", "ADMIN_PASSWORD_FILE")


HIDDEN = "…"
"""Stands for a value that may be a secret: that of a key we do not know, as `password`, may be one."""


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where."""

    value: object
    origin: str


def gather(flags: Mapping[str, str | Sequence[str]], environment: Mapping[str, str]) -> dict[str, Given]:
    """What was written for each setting, by the source that counts. ConfigInvalid: the file cannot be read."""
    written = {**_from_environment(environment), **_from_flags(flags)}
    config = written.pop(CONFIG_NAME, None)
    return {**_from_file(config), **written} if config else written


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
    return sorted(name for name in environment if name.startswith(ENVIRONMENT_PREFIX) and name not in known)


def _variable(name: str) -> str:
    return ENVIRONMENT_PREFIX + name.replace("-", "_").upper()


def _from_flags(flags: Mapping[str, str | Sequence[str]]) -> dict[str, Given]:
    return {name: Given(value if isinstance(value, str) else list(value), f"--{name}") for name, value in flags.items()}


def _from_environment(environment: Mapping[str, str]) -> dict[str, Given]:
    """An empty variable counts as not set; in a list, commas part the texts."""
    given: dict[str, Given] = {}
    for name in NAMES:
        text = environment.get(_variable(name), "")
        if text:
            parts = [part.strip() for part in text.split(",") if part.strip()]
            given[name] = Given(parts if name in _REPEATABLE else text, _variable(name))
    return given


def _from_file(config: Given) -> dict[str, Given]:
    path = Path(str(config.value)).expanduser()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        allowed = f"a file that can be read ({error.strerror})"
        raise ConfigInvalid([Mistake(CONFIG_NAME, str(path), allowed, config.origin)]) from error
    except ValueError as error:
        raise ConfigInvalid([Mistake(CONFIG_NAME, str(path), f"a TOML file ({error})", config.origin)]) from error
    return {name: Given(value, str(path)) for name, value in content.items()}
