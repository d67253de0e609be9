"""The identity of a cluster: a secret that its servers share through their stores, and show each other.

The port between servers (that of the overflow shard) takes calls of them alone where access is limited: whoever could
call there would pass by the rules. A server that limits nothing shows the secret too, once there is one.
"""

from __future__ import annotations

import hmac
import json
import secrets
from collections.abc import Sequence
from typing import Any

from pinlater.backends.base import ConfigEntry
from pinlater.errors import Forbidden
from pinlater.model import RequestContext
from pinlater.queues.directory import QueueDirectory
from pinlater.redaction import SECRETS
from pinlater.stored_json import read_stored
from pinlater.wire.method import Method

PEER_PREFIX = "@peer/"
_NAME = f"{PEER_PREFIX}secret"
_NOBODY_ELSE = "this port takes calls of the other servers of its cluster only; call their Thrift port"


class PeerSecret:
    """The secret as one process knows it; `token` is "" until one is known."""

    def __init__(self, directory: QueueDirectory) -> None:
        self.token = ""
        self._directory = directory
        directory.on_records(PEER_PREFIX, self._on_records)

    def _on_records(self, entries: Sequence[ConfigEntry]) -> None:
        for entry in entries:
            if entry.name == _NAME and not entry.is_deleted:
                try:
                    self.token = str(read_stored(entry.text).get("token", ""))
                except (ValueError, AttributeError):
                    continue  # of another version
                SECRETS.keep([self.token])

    async def make(self) -> None:
        """Makes one where there is none. NoHealthyShards."""
        if not self.token:
            made = json.dumps({"token": f"plt_{secrets.token_urlsafe(32)}"})
            await self._directory.change_record(
                _NAME, lambda before: made if before is None or before.is_deleted else None, "a server"
            )


class PeerGate:
    """The gate of a port between servers; see `Gate`."""

    has_rules = True

    def __init__(self, secret: PeerSecret) -> None:
        self._secret = secret

    async def admit(self, method: Method[Any], args: Any, context: RequestContext, size: int = 0) -> None:
        """Forbidden: the caller is no server of this cluster."""
        token = self._secret.token
        if not token or not hmac.compare_digest((args.context.token or "").encode(), token.encode()):
            raise Forbidden(f"{method.name}: {_NOBODY_ELSE}")

    async def begin(self, context: RequestContext, size: int, is_poll: bool) -> None:
        """Servers have passed on what they let in themselves: nothing more is bounded here."""

    def check_again(self, method: Method[Any], args: Any, context: RequestContext) -> None:
        """Whoever called let it wait; it is asked there."""

    def start_draining(self) -> None:
        """Nobody is kept waiting here."""
