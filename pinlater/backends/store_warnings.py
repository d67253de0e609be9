"""What an operator should know of a store's own settings. Said once per process and store, and nothing is refused."""

from __future__ import annotations

import logging

_log = logging.getLogger("pinlater.stores")
_said: set[tuple[str, str]] = set()


def warn_once(place: str, remark: str) -> None:
    """The standard library's logger: a store needs none of the server's packages."""
    if (place, remark) not in _said:
        _said.add((place, remark))
        _log.warning("%s: %s", place, remark)
