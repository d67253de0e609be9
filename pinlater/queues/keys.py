"""The keys of settings and their values, as people write them."""

from __future__ import annotations

import difflib

from pinlater.queues.settings import BY_NAME, QueueSetting

_KEYS = [name for name, setting in BY_NAME.items() if not setting.by_server]


def known_key(key: str) -> tuple[QueueSetting | None, str]:
    """The setting that people may write under this key; else None, and what they may have meant.

    >>> known_key("max_pendng")[1]
    'a known key (did you mean max_pending?)'
    """
    setting = BY_NAME.get(key)
    if setting is not None and not setting.by_server:
        return setting, setting.kind.allowed
    if setting is not None:
        return None, "nothing: the server writes it itself"
    close = difflib.get_close_matches(key, _KEYS, n=1)
    return None, f"a known key (did you mean {close[0]}?)" if close else f"one of {', '.join(_KEYS)}"
