"""The rules of access, as a file has them: which identities have which roles, from where, and what a role allows.

    [roles.mail-producer]
    may = ["enqueue", "read"]
    queues = ["mail-*"]
    groups = ["", "acme*"]
    bodies = false
    calls-per-second = 500
    max-queues = 100

    [[rules]]
    who = ["cert:*.mail.example", "token:web"]
    from = ["10.0.0.0/8"]
    roles = ["mail-producer"]

A role of the file takes the place of the built-in one of its name. A rule may also say `may`, `queues` and `bodies`
itself. `groups` are those that jobs may get, "" for jobs without one. Nothing is forbidden by a rule: a caller may do
what any of its roles and rules allows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from types import MappingProxyType
from typing import Any

from pinlater.config.loader import ConfigInvalid, Mistake
from pinlater.model import AccessAction, Grant
from pinlater.model.callers import EVERY_GROUP, is_role_name, matches
from pinlater.model.owner_bounds import OwnedKind, OwnerBounds
from pinlater.written import toml_of

Network = IPv4Network | IPv6Network
ACTIONS_ALLOWED = "a list of " + ", ".join(AccessAction)
_WHO_ALLOWED = "a list of cert:NAME, token:NAME and anonymous, in which * stands for any characters"
_BOUND_KEYS = tuple(f"max-{kind}" for kind in OwnedKind)
_NUMBER_KEYS = ("calls-per-second", *_BOUND_KEYS)
_GRANT_KEYS = ("may", "queues", "bodies", "groups", *_NUMBER_KEYS)
_GROUPS_ALLOWED = 'a list of groups, in which * stands for any characters, and "" for jobs without a group'
_RULE_KEYS = ("who", "from", "roles", *_GRANT_KEYS)

EVERYTHING = tuple(action for action in AccessAction if action is not AccessAction.GATEWAY)

BUILT_IN_ROLES: Mapping[str, Sequence[Grant]] = MappingProxyType(
    {
        "producer": (Grant((AccessAction.ENQUEUE, AccessAction.READ)),),
        "worker": (Grant((AccessAction.CONSUME,)), Grant((AccessAction.READ,), bodies=False)),
        "viewer": (Grant((AccessAction.READ,), bodies=False),),
        "operator": (Grant((AccessAction.READ, AccessAction.OPERATE)),),
        "admin": (Grant(EVERYTHING),),
        "gateway": (Grant((AccessAction.GATEWAY,)),),
        "history": (Grant((AccessAction.READ,), bodies=False),),
    }
)


@dataclass(frozen=True, slots=True)
class Rule:
    """Callers whose identity matches one of the patterns, from one of the networks (none: from anywhere)."""

    who: Sequence[str]
    networks: Sequence[Network] = ()
    roles: Sequence[str] = ()
    grants: Sequence[Grant] = ()

    def applies(self, identities: Collection[str], addresses: Collection[str]) -> bool:
        """All the addresses have to be in the networks: one that cannot be read is in none."""
        if not any(matches(pattern, identity) for pattern in self.who for identity in identities):
            return False
        return not self.networks or all(self._is_from(address) for address in addresses)

    def _is_from(self, address: str) -> bool:
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None) or found
        return any(mapped in network for network in self.networks)


@dataclass(frozen=True, slots=True)
class AccessRules:
    """What a file says."""

    roles: Mapping[str, Sequence[Grant]] = field(default_factory=lambda: BUILT_IN_ROLES)
    rules: Sequence[Rule] = ()

    def roles_of(self, identities: Collection[str], addresses: Collection[str]) -> list[str]:
        """Those that rules give it."""
        rules = [rule for rule in self.rules if rule.applies(identities, addresses)]
        return list(dict.fromkeys(role for rule in rules for role in rule.roles))

    def judged_by(self, identities: Sequence[str], addresses: Collection[str]) -> list[str]:
        """Those of the identities of one caller to which rules give something; the first where none does."""
        found: list[str] = []
        for rule in self.rules:
            if not rule.applies(found, addresses):
                found += [each for each in identities if rule.applies((each,), addresses)][:1]
        return found or list(identities[:1])

    def grants(
        self, identities: Collection[str], roles: Sequence[str], addresses: Collection[str]
    ) -> tuple[Grant, ...]:
        """All that a caller may do: by its own roles, those that rules give it, and the rules themselves."""
        rules = [rule for rule in self.rules if rule.applies(identities, addresses)]
        names = dict.fromkeys((*roles, *(role for rule in rules for role in rule.roles)))
        of_roles = (grant for name in names for grant in self.roles.get(name, ()))
        return (*of_roles, *(grant for rule in rules for grant in rule.grants))


def parse_rules(text: bytes, origin: str) -> AccessRules:
    """The rules in the content of a file. ConfigInvalid, with all mistakes."""
    try:
        tables = toml_of(text)
    except ValueError as error:
        raise ConfigInvalid([Mistake("rules", origin, f"TOML ({error})", origin)]) from error
    reader = _Reader(origin)
    rules = reader.rules(tables)
    if reader.mistakes:
        raise ConfigInvalid(reader.mistakes)
    return rules


class _Reader:
    """Notes mistakes as it reads."""

    def __init__(self, origin: str) -> None:
        self.mistakes: list[Mistake] = []
        self._origin = origin

    def _wrong(self, key: str, value: object, allowed: str) -> None:
        self.mistakes.append(Mistake(key, value, allowed, self._origin))

    def rules(self, tables: Mapping[str, Any]) -> AccessRules:
        self._known_keys("", tables, ("roles", "rules"))
        roles = dict(BUILT_IN_ROLES)
        role_tables = tables.get("roles", {})
        if not isinstance(role_tables, dict):
            self._wrong("roles", role_tables, "tables [roles.NAME]")
            role_tables = {}
        for name, table in role_tables.items():
            key = f"roles.{name}"
            if not is_role_name(name):
                self._wrong(key, name, "a name of 1 to 64 letters, digits, _ and -")
            elif not isinstance(table, dict):
                self._wrong(key, table, f"a table [{key}] with may, queues, bodies")
            else:
                self._known_keys(f"{key}.", table, _GRANT_KEYS)
                roles[name] = self._grants(f"{key}.", table, is_needed=True)
        listed = tables.get("rules", [])
        if not isinstance(listed, list) or not all(isinstance(each, dict) for each in listed):
            self._wrong("rules", listed, "tables [[rules]]")
            listed = []
        return AccessRules(
            roles, tuple(self._rule(f"rules[{at}].", table, roles) for at, table in enumerate(listed, 1))
        )

    def _rule(self, at: str, table: Mapping[str, Any], roles: Collection[str]) -> Rule:
        self._known_keys(at, table, _RULE_KEYS)
        who = self._texts(f"{at}who", table.get("who"), _WHO_ALLOWED)
        for pattern in who:
            if not pattern.startswith(("cert:", "token:")) and pattern not in ("anonymous", "*"):
                self._wrong(f"{at}who", pattern, _WHO_ALLOWED)
        names = self._texts(f"{at}roles", table["roles"], "a list of roles") if "roles" in table else ()
        for name in names:
            if name not in roles:
                self._wrong(f"{at}roles", name, f"a role of this file, or one of {', '.join(BUILT_IN_ROLES)}")
        if not names and "may" not in table:
            self._wrong(f"{at}roles", None, "roles, or may with a list of actions")
        return Rule(who, self._networks(f"{at}from", table), names, self._grants(at, table, is_needed=False))

    def _networks(self, key: str, table: Mapping[str, Any]) -> tuple[Network, ...]:
        networks = []
        for text in self._texts(key, table["from"], "a list of networks") if "from" in table else ():
            try:
                networks.append(ip_network(text))
            except ValueError as error:
                self._wrong(key, text, f"a network as 10.0.0.0/8, or an address ({error})")
        return tuple(networks)

    def _grants(self, at: str, table: Mapping[str, Any], *, is_needed: bool) -> tuple[Grant, ...]:
        if "may" not in table:
            for key in _GRANT_KEYS[1:]:
                if key in table and not is_needed:
                    self._wrong(f"{at}{key}", table[key], "it only beside may")
            if is_needed:
                self._wrong(f"{at}may", None, ACTIONS_ALLOWED)
            return ()
        actions = self._texts(f"{at}may", table["may"], ACTIONS_ALLOWED)
        for action in actions:
            if action not in list(AccessAction):
                self._wrong(f"{at}may", action, ACTIONS_ALLOWED)
        queues = self._texts(f"{at}queues", table.get("queues", ["*"]), "a list of queues, in which * stands for any")
        groups = self._texts(f"{at}groups", table.get("groups", list(EVERY_GROUP)), _GROUPS_ALLOWED, may_be_empty=True)
        bodies = table.get("bodies", True)
        if not isinstance(bodies, bool):
            self._wrong(f"{at}bodies", bodies, "true or false")
        rate, *bounds = (self._number(f"{at}{key}", table.get(key, 0)) for key in _NUMBER_KEYS)
        known = tuple(AccessAction(action) for action in actions if action in list(AccessAction))
        return (Grant(known, queues, bodies is True, rate, OwnerBounds(*bounds), groups),)

    def _number(self, key: str, value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**63:
            self._wrong(key, value, "a number of 1 or more; 0 for no bound of its own")
            return 0
        return value

    def _texts(self, key: str, value: object, allowed: str, *, may_be_empty: bool = False) -> tuple[str, ...]:
        """`may_be_empty`: a text of the list, not the list."""
        if (
            not isinstance(value, list)
            or not value
            or not all(isinstance(each, str) and (each or may_be_empty) for each in value)
        ):
            self._wrong(key, value, allowed)
            return ()
        return tuple(value)

    def _known_keys(self, at: str, table: Mapping[str, Any], keys: Sequence[str]) -> None:
        for key in table.keys() - set(keys):
            self._wrong(f"{at}{key}", table[key], f"only {', '.join(keys)}")
