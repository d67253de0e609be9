"""One-time links: each opens the dashboard for whoever has it, once, within five minutes.

The link stands for the credential that asked for it. The hash of its secret alone is kept, in the memory of this
process.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from hashlib import sha256
from secrets import token_urlsafe

from pinlater.http.fair_shares import FairEntries
from pinlater.http.sessions import Credential

VALID_S = 300.0
MAX_LINKS = 100
"""Then the oldest one is void of whoever has most."""


class OneTimeLinks:
    """Those that nobody has used yet."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.kept: FairEntries[tuple[Credential, float]] = FairEntries("http_links", MAX_LINKS)

    def make(self, credential: Credential) -> str:
        """The secret of a new link."""
        secret = token_urlsafe(32)
        self.kept.put(credential.identity, _key(secret), (credential, self._clock() + VALID_S))
        return secret

    def use(self, secret: str) -> Credential | None:
        """What the link stands for; None: it was used, has ended, or never was. Found by its hash, so how long that
        takes says nothing about the secret.
        """
        credential, ends_s = self.kept.pop(_key(secret)) or (None, 0.0)
        return credential if self._clock() < ends_s else None


def _key(secret: str) -> bytes:
    return sha256(secret.encode("utf-8", "replace")).digest()
