"""The texts of key windows, which all kinds of store write and read alike."""

from __future__ import annotations

import json
from typing import NamedTuple


class WindowText(NamedTuple):
    """What a window says: the key, and what it answers with. Of a dedupe key `send_id` is "", of a send id the keys
    are; `outcome` is the OfferOutcome that the first one with the send id got, 0 for a dedupe key.
    """

    queue: str
    descriptor: str
    dedupe_key: str = ""
    serialize_key: str = ""
    send_id: str = ""
    outcome: int = 0

    def dump(self) -> str:
        return json.dumps(self, ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def load(cls, text: str) -> WindowText:
        return cls(*json.loads(text))
