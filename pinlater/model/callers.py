"""Callers: who makes a call, and what that one may do."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pinlater.model.connection_ref import host_of
from pinlater.model.owner_bounds import NO_BOUNDS, OwnedCount, OwnerBounds

ANONYMOUS = "anonymous"
"""The identity of who shows neither a certificate nor a token."""

EVERY_QUEUE = "*"
"""Stands for the whole cluster where a call names no queue: only a grant for all queues allows it."""

ANY_QUEUE = "?"
"""Stands where a call answers with those queues that the caller may read: a grant for one is enough."""

EVERY_GROUP = ("*",)
"""The groups of a grant that does not limit them: any, and jobs without one."""

MAX_TOKENS = 10_000
MAX_ROLES = 20
TOKEN_NAME_ALLOWED = "1 to 100 letters, digits, ., _ and -"
_TOKEN_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}", re.ASCII)
_ROLE_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_MAX_KNOWN = 1_000


class AccessAction(StrEnum):
    """What a call does, as far as it needs a right."""

    ENQUEUE = "enqueue"
    CONSUME = "consume"
    READ = "read"
    OPERATE = "operate"
    ADMIN = "admin"
    GATEWAY = "gateway"
    """Of no call: to say for whom one calls, as the HTTP interface does for callers it has identified."""


def is_token_name(name: str) -> bool:
    """
    >>> is_token_name("mail-web.2"), is_token_name("mail web"), is_token_name("")
    (True, False, False)
    """
    return _TOKEN_NAME.fullmatch(name) is not None


def is_role_name(name: str) -> bool:
    """
    >>> is_role_name("mail-producer"), is_role_name("a.b")
    (True, False)
    """
    return _ROLE_NAME.fullmatch(name) is not None


def matches(pattern: str, text: str) -> bool:
    """`*` in a pattern stands for any characters, none too; all else for itself.

    >>> matches("mail-*", "mail-eu"), matches("mail-*", "mail"), matches("*", ""), matches("a.c", "abc")
    (True, False, True, False)
    """
    if "*" not in pattern:
        return pattern == text
    first, *middle, last = pattern.split("*")
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    at, end = len(first), len(text) - len(last)
    for part in middle:
        at = text.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


class Grant(NamedTuple):
    """What a role allows: these actions on the queues that match one of the patterns. Without `bodies`, those who may
    only read see no bodies and no results. `calls_per_second` bounds all calls of a caller with this grant, and of
    several such bounds the highest counts; 0 for that of all callers. So do `bounds` on what it may keep stored.
    `groups`: patterns of those that jobs may get by a call which it allows; "" allows jobs without one.
    """

    actions: Sequence[AccessAction]
    queues: Sequence[str] = (EVERY_QUEUE,)
    bodies: bool = True
    calls_per_second: int = 0
    bounds: OwnerBounds = NO_BOUNDS
    groups: Sequence[str] = EVERY_GROUP

    def allows(self, actions: Collection[AccessAction], queue: str, shows_bodies: bool) -> bool:
        """One of the actions is enough."""
        if shows_bodies and not self.bodies:
            return False
        if not any(action in self.actions for action in actions):
            return False
        if queue in (EVERY_QUEUE, ANY_QUEUE):
            return queue == ANY_QUEUE or EVERY_QUEUE in self.queues
        return any(matches(pattern, queue) for pattern in self.queues)


@dataclass(slots=True, eq=False)
class Caller:
    """Who makes a call, as the server has found out.

    `identity` is `cert:NAME`, `token:NAME` or ANONYMOUS; of a certificate with several names that rules know, all of
    these, with commas between them. `is_open`: no rules are in force and it has no roles, so it may do all that needs
    no admin password. `has_rules`: rules are in force. `calls_per_second` is the bound on its calls by its roles, 0 for
    that of all callers. `address` is where it calls from, as a gateway says that may say so; `gateway_hash`: of the
    token by which that gateway proved itself beside this caller's own. `limits_groups`: a grant says which groups.
    """

    identity: str
    roles: Sequence[str] = ()
    grants: Sequence[Grant] = ()
    is_open: bool = False
    has_rules: bool = False
    expires_ms: int | None = None
    token_hash: str | None = None
    calls_per_second: int = 0
    address: str | None = None
    gateway_hash: str | None = None
    limits_groups: bool = field(init=False)
    _known: dict[tuple[Collection[AccessAction], str, bool], bool] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        self.limits_groups = any(grant.groups != EVERY_GROUP for grant in self.grants)

    def may(self, actions: Collection[AccessAction], queue: str, shows_bodies: bool = False) -> bool:
        """One of the actions is enough; EVERY_QUEUE for what concerns the whole cluster."""
        request = (actions, queue, shows_bodies)
        known = self._known.get(request)
        if known is None:
            if len(self._known) >= _MAX_KNOWN:
                self._known.clear()
            known = any(grant.allows(actions, queue, shows_bodies) for grant in self.grants)
            self._known[request] = known
        return known

    def group_refusal(self, actions: Collection[AccessAction], queue: str, groups: Iterable[str]) -> str:
        """Why a call that does one of the actions may not name one of these groups; "": it may name all. The group ""
        stands for jobs without one. A * in a group stands for any text, which only a * in a pattern allows.
        """
        if not self.limits_groups:
            return ""
        patterns = [each for grant in self.grants if grant.allows(actions, queue, False) for each in grant.groups]
        for group in groups:
            if not any(matches(pattern, group) for pattern in patterns):
                where = "all queues" if queue == EVERY_QUEUE else f"queue {queue!r}"
                allowed = ", ".join(map(_in_group, dict.fromkeys(patterns)))
                return (
                    f"{self.identity} may not {' or '.join(actions)} on {where} {_in_group(group)}; "
                    f"allowed to it there: {allowed}"
                )
        return ""


def _in_group(group: str) -> str:
    return f"in group {group!r}" if group else "without a group"


def holder_of(caller: Caller | None, peer: object) -> str:
    """Whose share of what all callers have in common a call takes: its identity's, or of who shows none, its address'.
    `peer` is the other end of its connection; a gateway may have said from where the call comes.
    """
    if caller is not None:
        if caller.identity != ANONYMOUS:
            return caller.identity
        if caller.address is not None:
            peer = (caller.address, 0)
    return f"{ANONYMOUS} at {host_of(peer)}"


@dataclass(slots=True)
class TokenView:
    """A token, as operators see it. `expires_ms` None: it has no end; `last_used_ms` to within ten minutes."""

    name: str
    roles: list[str]
    made_by: str = ""
    made_at_ms: int = 0
    expires_ms: int | None = None
    last_used_ms: int | None = None


@dataclass(slots=True)
class AccessView:
    """Who a caller is, and what it may. `stored`: what it has made of each kind; nothing where that is not counted."""

    identity: str
    roles: list[str]
    grants: list[Grant]
    has_rules: bool
    stored: list[OwnedCount] = field(default_factory=list)

    def needs_no_password(self, actions: Collection[AccessAction], queue: str = EVERY_QUEUE) -> bool:
        """Whether a call that does one of these is allowed by a role or a rule, so that it needs no admin password."""
        is_open = not (self.has_rules or self.roles)
        return not is_open and any(grant.allows(actions, queue, False) for grant in self.grants)
