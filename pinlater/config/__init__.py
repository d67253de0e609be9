"""The configuration of a server: one table of settings (`settings.py`), from flags, environment and a file."""

from __future__ import annotations

from pinlater.config.loader import ConfigInvalid, Loaded, Mistake, keep_secrets, load, secrets_of
from pinlater.config.reference import config_toml, default_of, docs_page
from pinlater.config.settings import SETTINGS, Config, Setting, from_plain, to_plain
from pinlater.config.stores import StoreConfig

__all__ = [
    "SETTINGS",
    "Config",
    "ConfigInvalid",
    "Loaded",
    "Mistake",
    "Setting",
    "StoreConfig",
    "config_toml",
    "default_of",
    "docs_page",
    "from_plain",
    "keep_secrets",
    "load",
    "secrets_of",
    "to_plain",
]
