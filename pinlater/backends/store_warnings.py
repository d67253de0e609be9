"""Warnings about a store's own settings, each given once per process and store; nothing is refused."""

from __future__ import annotations

from pinlater.log_guard import GuardedLogger

_log = GuardedLogger("pinlater.stores")
_given: set[tuple[str, str]] = set()


def warn_once(place: str, warning: str) -> None:
    """The standard library's logger: a store needs none of the server's packages."""
    if (place, warning) not in _given:
        _given.add((place, warning))
        _log.warning("%s: %s", place, warning)
