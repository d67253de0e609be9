"""The gate: who makes a call, and whether that caller may.

A caller is known by the certificate of its connection and by the token of the call; what these and its address amount
to is worked out once, and kept until the rules or the tokens change. Where no rules are in force, who shows no token
may do all that needs no admin password, as ever; a token's roles always count, and a wrong token is always refused.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote, unquote

import structlog

from pinlater.access.fair_use import POLL_S, CallUse, FairUse
from pinlater.access.guesses import Refused, TokenGuesses
from pinlater.access.rules import BUILT_IN_ROLES, EVERYTHING, AccessRules
from pinlater.access.rules_file import RulesFile
from pinlater.access.tokens import TokenBook, token_hash
from pinlater.clock import Clock
from pinlater.errors import Forbidden
from pinlater.model import ANONYMOUS, AccessAction, AccessView, Caller, ConnectionRef, Grant, RequestContext
from pinlater.model.owner_bounds import MAX_OWNER_CHARS, NO_BOUNDS, OwnerBounds, owner_name
from pinlater.wire.method import Access, Method

_log = structlog.get_logger("pinlater.access")
_MAX_CALLERS = 10_000
_MAX_KEPT_TEXT = 1_000
"""What a call shows of its caller is kept up to so many characters: whatever is longer is worked out each time."""

_REPORTED_AGAIN_MS = 60_000
"""What one caller is refused again and again is in the audit once in this time."""

_GATEWAY_NAME = "gateway"
_HISTORY_NAME = "history"
_GATEWAY_ONLY = (AccessAction.GATEWAY,)
_WRONG_TOKEN = "the token is wrong: it is not known here, was revoked, or has ended"
_ENDED_MEANWHILE = "the token was revoked, or has ended, while this call waited"
_OPEN = (Grant(EVERYTHING),)
"""What everybody may where no rules are in force; what needs the admin password still needs it."""


def access_view(caller: Caller | None) -> AccessView:
    """Who a caller is and what it may, for itself. None: nothing limits it, and it shows nothing."""
    if caller is None:
        return AccessView(ANONYMOUS, [], list(_OPEN), has_rules=False)
    return AccessView(caller.identity, list(caller.roles), list(caller.grants), caller.has_rules)


class _Shown(NamedTuple):
    """What a call shows of its caller."""

    token: str | None
    on_behalf_of: str | None
    caller_address: str | None
    gateway_token: str | None
    names_behind: tuple[str, ...]
    address: str
    certificate_names: tuple[str, ...]

    def size(self) -> int:
        """Characters of the texts that the call may choose."""
        texts = (self.token, self.on_behalf_of, self.caller_address, self.gateway_token, *self.names_behind)
        return sum(len(text or "") + 1 for text in texts)


def _shown(sent: Any, connection: ConnectionRef) -> _Shown:
    return _Shown(
        sent.token,
        sent.on_behalf_of,
        sent.caller_address,
        sent.gateway_token,
        tuple(sent.certificate_names or ()),
        _address(connection.peer),
        connection.certificate_names,
    )


class CallGate(Protocol):
    """What lets the calls of a port in."""

    has_rules: bool
    """Every call has to pass; else those alone that show who they come from."""

    async def admit(self, method: Method[Any], args: Any, context: RequestContext, size: int = 0) -> None:
        """Sets the caller of a context, and whether the call needs no admin password. `size`: of the call, in bytes.
        Forbidden.
        """

    async def begin(self, context: RequestContext, size: int, is_poll: bool) -> CallUse | None:
        """A call of so many bytes by a caller that was admitted, when it has its turn; to be ended. None: there is
        nothing to end. Overloaded.
        """

    def check_again(self, method: Method[Any], args: Any, context: RequestContext) -> None:
        """Of a call that was let in and has waited. Forbidden: it would not be let in any more."""

    def start_draining(self) -> None:
        """The server ends: nobody is kept waiting any more."""


class Gate:
    """Lets calls in, for one process. `refused` hears of calls that would have changed something."""

    def __init__(
        self,
        tokens: TokenBook,
        clock: Clock,
        refused: Refused,
        guesses: TokenGuesses,
        fair_use: FairUse,
        rules_file: RulesFile | None = None,
        gateway_hash: str = "",
        history_hash: str = "",
        bounds: OwnerBounds = NO_BOUNDS,
    ) -> None:
        """`gateway_hash`, `history_hash`: of the tokens of this server's own HTTP process, by which it speaks for
        others, and looks for itself; "" for none. `bounds`: of identities whose roles have none of their own.
        """
        self._tokens = tokens
        self._clock = clock
        self._refused = refused
        self._guesses = guesses
        self._fair_use = fair_use
        self.has_rules = rules_file is not None
        """Rules are in force, so every call has to pass."""
        self._file = rules_file
        self._bounds = bounds
        self._gateway_hash = gateway_hash
        self._history_hash = history_hash
        self._callers: dict[_Shown, Caller] = {}
        self._long_identities: dict[str, str] = {}
        """Those that were shown here, by what is kept of them."""
        self._reported_at_ms: dict[tuple[str, str], int] = {}
        tokens.on_change = self._callers.clear

    def start_draining(self) -> None:
        """The server ends, and keeps nobody waiting."""
        self._guesses.start_draining()

    async def look(self) -> None:
        """To be called each second: reads the rules when their file has changed."""
        if self._file is not None and self._file.read_again():
            self._callers.clear()

    async def admit(self, method: Method[Any], args: Any, context: RequestContext, size: int = 0) -> None:
        """Sets the caller of a context, and whether the call needs no admin password. `size`: of the call, in bytes.
        Forbidden.
        """
        connection = context.connection
        assert connection is not None
        shown = _shown(args.context, connection)
        caller = self._find(shown)
        if caller is None and await self._tokens.look_again():
            caller = self._learn(shown)
        if caller is None:
            if self._gateway_of(shown) is None:
                await self._guesses.hold_back(connection.peer, context.source, size)
            else:
                self._guesses.note((shown.caller_address, 0), context.source)
            raise Forbidden(_WRONG_TOKEN)
        context.caller = caller
        for used in (caller.token_hash, caller.gateway_hash):
            if used is not None:
                self._tokens.used(used, self._clock.now_ms())
        self._check(method, args, context, caller)

    async def begin(self, context: RequestContext, size: int, is_poll: bool) -> CallUse:
        """A call of so many bytes by a caller that was admitted, when it has its turn; to be ended. Overloaded."""
        assert context.caller is not None
        assert context.connection is not None
        fair_use = self._fair_use
        call = fair_use.begin(context.caller, context.connection, size)
        if is_poll and not fair_use.is_shared(call.use):
            call.end_turn()
            return call
        turn = fair_use.turn(call)
        if turn is not None:
            await fair_use.wait(call, turn)
        if is_poll:
            asyncio.get_running_loop().call_later(POLL_S, call.end_turn)
        return call

    def check_again(self, method: Method[Any], args: Any, context: RequestContext) -> None:
        """Of a call that was let in and has waited. Forbidden: it would not be let in any more."""
        assert context.connection is not None
        shown = _shown(args.context, context.connection)
        caller = self._find(shown)
        if caller is None:
            raise Forbidden(_ENDED_MEANWHILE)
        if caller is not context.caller:  # else no rule and no token has changed
            self._check(method, args, context, caller)

    def _has_ended(self, expires_ms: int | None) -> bool:
        return expires_ms is not None and expires_ms <= self._clock.now_ms()

    def _check(self, method: Method[Any], args: Any, context: RequestContext, caller: Caller) -> None:
        actions = method.actions if method.actions_of is None else method.actions_of(args)
        if not actions:
            return
        shows_bodies = method.shows_bodies is not None and method.shows_bodies(args)
        why = ""
        for queue in method.queues(args):
            if not caller.may(actions, queue, shows_bodies):
                break
            if caller.limits_groups and method.groups is not None:
                why = caller.group_refusal(actions, queue, method.groups(args))
                if why:
                    break
        else:
            context.is_granted = not caller.is_open
            return
        if method.access is Access.ADMIN_PASSWORD and method.password(args):
            return  # which is checked where the call is carried out
        if not why:
            where = {"*": "all queues", "?": "any queue"}.get(queue, f"queue {queue!r}")
            what = ", which shows bodies or results" if shows_bodies and caller.may(actions, queue) else ""
            why = f"{caller.identity} may not {' or '.join(actions)} on {where}{what}"
        if method.changes:
            self._tell(caller.identity, method.name, queue, context)
        raise Forbidden(f"{method.name}: {why}; ask for a role that allows it (`pinlater access show`)")

    def _tell(self, identity: str, method: str, queue: str, context: RequestContext) -> None:
        now_ms = self._clock.now_ms()
        who = (identity, method)
        if now_ms - self._reported_at_ms.get(who, -_REPORTED_AGAIN_MS) < _REPORTED_AGAIN_MS:
            return
        if len(self._reported_at_ms) >= _MAX_CALLERS:
            self._reported_at_ms.clear()
        self._reported_at_ms[who] = now_ms
        self._refused(f"{identity} ({context.source})", method, queue, "not allowed")

    def _find(self, shown: _Shown) -> Caller | None:
        """As it is kept, else worked out anew. None: its token is wrong, or has ended."""
        caller = self._callers.get(shown)
        return self._learn(shown) if caller is None or self._has_ended(caller.expires_ms) else caller

    def _learn(self, shown: _Shown) -> Caller | None:
        """None: its token is wrong."""
        caller = self._caller(shown)
        if caller is not None and shown.size() <= _MAX_KEPT_TEXT:
            if len(self._callers) >= _MAX_CALLERS:
                self._callers.clear()
            self._callers[shown] = caller
        return caller

    def _caller(self, shown: _Shown) -> Caller | None:
        """None: its token is wrong, or has ended."""
        addresses = [shown.address] if shown.caller_address is None else [shown.address, shown.caller_address]
        if shown.token is None:
            certificates = [f"cert:{name}" for name in shown.certificate_names]
            return self._known_as(certificates or [ANONYMOUS], (), addresses)
        gateway = self._gateway_of(shown)
        caller = self._of_token(shown.token, addresses if gateway is None else addresses[1:])
        if caller is None:
            return None
        if gateway is not None:
            caller.address, caller.gateway_hash = shown.caller_address, gateway.token_hash
            caller.expires_ms = min(
                (each.expires_ms for each in (caller, gateway) if each.expires_ms is not None), default=None
            )
        if shown.on_behalf_of is None or not caller.may(_GATEWAY_ONLY, "*"):
            return caller
        identities = [ANONYMOUS]
        if shown.on_behalf_of.startswith("cert:"):
            identities = [f"cert:{name}" for name in shown.names_behind] or [shown.on_behalf_of]
        behind = self._known_as(identities, (), [shown.caller_address or ""])
        behind.expires_ms, behind.token_hash = caller.expires_ms, caller.token_hash
        behind.address = shown.caller_address
        return behind

    def _gateway_of(self, shown: _Shown) -> Caller | None:
        """The gateway that proves itself beside its caller, and says from where that calls; None: there is none."""
        if shown.gateway_token is None or not _is_address(shown.caller_address):
            return None
        gateway = self._of_token(shown.gateway_token, [shown.address])
        return gateway if gateway is not None and gateway.may(_GATEWAY_ONLY, "*") else None

    def _of_token(self, text: str, addresses: list[str]) -> Caller | None:
        """None: it is wrong, or has ended."""
        hashed = token_hash(text)
        if self._gateway_hash and hashed == self._gateway_hash:
            grants = BUILT_IN_ROLES[_GATEWAY_NAME]
            return Caller(_GATEWAY_NAME, (), grants, has_rules=self.has_rules, token_hash=hashed)
        if self._history_hash and hashed == self._history_hash:
            grants = self._history_grants()
            return Caller(_HISTORY_NAME, (_HISTORY_NAME,), grants, has_rules=self.has_rules, token_hash=hashed)
        token = self._tokens.find(hashed)
        if token is None or self._has_ended(token.expires_ms):
            return None
        caller = self._known_as([f"token:{token.name}"], token.roles, addresses)
        caller.expires_ms, caller.token_hash = token.expires_ms, hashed
        return caller

    def _history_grants(self) -> tuple[Grant, ...]:
        """It reads what everybody may read, or else what the role of its name allows, and never more than that."""
        if self._file is None:
            return (Grant((AccessAction.READ,)),)
        return tuple(
            Grant((AccessAction.READ,), grant.queues, grant.bodies)
            for grant in self._file.rules.roles[_HISTORY_NAME]
            if AccessAction.READ in grant.actions
        )

    def _known_as(self, identities: list[str], roles: tuple[str, ...], addresses: list[str]) -> Caller:
        rules = _NO_RULES if self._file is None else self._file.rules
        grants = rules.grants(identities, roles, addresses)
        is_open = self._file is None and not roles
        names = list(dict.fromkeys((*roles, *rules.roles_of(identities, addresses))))
        judged = rules.judged_by(identities, addresses)
        identity = ", ".join(map(_listed, judged))
        if MAX_OWNER_CHARS < len(identity) <= _MAX_KEPT_TEXT:
            if len(self._long_identities) >= _MAX_CALLERS:
                self._long_identities.clear()
                self._callers.clear()  # each is learnt again
            self._long_identities[owner_name(identity)] = identity
        caller = Caller(identity, names, _OPEN if is_open else grants, is_open, self.has_rules)
        caller.calls_per_second = max((grant.calls_per_second for grant in grants), default=0)
        return caller

    def bounds_of(self, owner: str) -> OwnerBounds:
        """What an identity may keep stored, by all its roles and rules, from wherever it calls: what it has made stays
        when it calls from elsewhere. One whose name is too long to be kept has those of every identity until it calls
        here.
        """
        owner = self._long_identities.get(owner, owner)
        rules = _NO_RULES if self._file is None else self._file.rules
        token = self._tokens.named(owner.removeprefix("token:")) if owner.startswith("token:") else None
        identities = {name for each in owner.split(", ") for name in (each, unquote(each)) if _listed(name) == each}
        grants = rules.grants(identities, () if token is None else token.roles, [])
        return self._bounds.widened(grant.bounds for grant in grants)


_NO_RULES = AccessRules()
_PLAIN = bytes(range(0x21, 0x7F)).replace(b",", b"")


def _listed(identity: str) -> str:
    """As one of several in a text: a comma or a space in a name would look like the end of it."""
    return quote(identity, safe=_PLAIN)


def _is_address(text: str | None) -> bool:
    try:
        ip_address((text or "").partition("%")[0])
    except ValueError:
        return False
    return True


def _address(peer: object) -> str:
    return str(peer[0]) if isinstance(peer, tuple) and peer else ""
