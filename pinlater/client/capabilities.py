"""Capabilities that servers of earlier versions lack.

Such a server would carry out a call that needs one as another call. So a client asks it first (decisions 161 and 363).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pinlater.client.addresses import Address
from pinlater.errors import GroupsNotYet, MethodUnknown, PinLaterError
from pinlater.model import CONTINUATION_START, RequestContext
from pinlater.wire.methods import HEARTBEAT, Method
from pinlater.wire.operator_methods import GET_GROUPS


@dataclass(frozen=True, slots=True, eq=False)
class Capability:
    """A server that knows `method` has it, whatever it answers to these arguments, which change nothing."""

    method: Method[Any]
    args: Any
    error: type[PinLaterError]
    named: str

    def lacking_at(self, address: Address) -> PinLaterError:
        return self.error(
            f"the server at {address} is of a version that does not know {self.named}; update the servers first"
        )


KEYS = Capability(
    HEARTBEAT,
    HEARTBEAT.arguments(RequestContext("keys"), "keys", ()),
    MethodUnknown,
    "keys, send ids, expiry, results or requests to stop",
)
_NO_PAGE = ("groups", (), CONTINUATION_START, 0)
"""A page of no groups is refused before any store is asked."""

GROUPS = Capability(GET_GROUPS, GET_GROUPS.arguments(RequestContext("groups"), *_NO_PAGE), GroupsNotYet, "groups")
"""What has groups has keys too."""
