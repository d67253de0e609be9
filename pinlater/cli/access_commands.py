"""`pinlater access`: who a caller is and what it may, and what a rules file means before a server reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address
from pathlib import Path

import click

from pinlater.access.rules import BUILT_IN_ROLES, AccessRules, Network, Rule, parse_rules
from pinlater.cli.completion import one_of
from pinlater.cli.connection import EXIT_CODES, ServerGroup, say, talks_to_server
from pinlater.cli.exit_codes import EXIT_FAILED
from pinlater.cli.output import has_new_keys, output_option, write_all
from pinlater.client.client import Client
from pinlater.config.loader import ConfigInvalid, shown
from pinlater.errors import MethodUnknown
from pinlater.model import ANONYMOUS, EVERY_QUEUE, AccessAction, Grant, is_queue_name
from pinlater.model.callers import EVERY_GROUP, is_token_name, matches
from pinlater.model.jobs import CONTROL_CHAR, MAX_GROUP_BYTES
from pinlater.model.owner_bounds import OwnedCount
from pinlater.printable import json_text, printable

COLUMNS = ("may", "queues", "bodies", "groups")
STORED_COLUMNS = ("kind", "used", "limit")
_ACTIONS = tuple(str(action) for action in AccessAction)
_NOWHERE = ""
"""An address that is in no network."""


@click.group(
    cls=ServerGroup,
    epilog=f"""\b
Examples:
  pinlater access show
  pinlater access usage
  pinlater access check rules.toml
  pinlater access test cert:web.mail.example enqueue mail-out --rules rules.toml --from 10.0.0.7

{EXIT_CODES}""",
)
def access() -> None:
    """Show who may do what, and check a rules file."""


@access.command(
    short_help="Show the caller's identity and rights.",
    epilog="""\b
Examples:
  pinlater access show
  pinlater access show --token-file web.token
  pinlater access show -o json""",
)
@output_option
@talks_to_server
def show(client: Client, format: str) -> None:
    """Show this caller's identity, its roles, and what these allow on which queues.

    Where no rules are in force, everybody may do what needs no admin password.
    """
    try:
        view = client.get_access()
    except MethodUnknown as unknown:
        raise MethodUnknown("this server is of an earlier version, which limits no access") from unknown
    if has_new_keys(format):
        write_all(format, (), [view])
        return
    if format == "table":
        roles = f", with the roles {', '.join(view.roles)}" if view.roles else ""
        is_open = not (view.has_rules or view.roles)
        say(f"{view.identity}{roles}" + ("; no rules are in force: what needs the admin password needs it" * is_open))
    caller = {"identity": view.identity, "roles": view.roles, "has_rules": view.has_rules}
    grants = [
        {"may": list(map(str, each.actions)), "queues": list(each.queues), "bodies": each.bodies}
        | ({"groups": [group or "(none)" for group in each.groups]} if format == "table" else {})
        for each in view.grants
    ]
    stored = [_row_of(each, format) for each in view.stored]
    write_all(format, COLUMNS, grants if format == "table" else [caller | {"grants": grants, "stored": stored}])
    if format == "table" and stored:
        click.echo()
        write_all(format, STORED_COLUMNS, stored)


def _row_of(count: OwnedCount, format: str) -> dict[str, object]:
    limit = count.limit or None if format == "table" else count.limit
    return {"kind": str(count.kind), "used": count.used, "limit": limit}


@access.command(
    short_help="Show how much each identity has stored.",
    epilog="""\b
Examples:
  pinlater access usage
  pinlater access usage -o json""",
)
@output_option
@talks_to_server
def usage(client: Client, format: str) -> None:
    """Show how many flows, items of flows, queues, schedules and tokens each identity has made that are there, and may
    have: up to 1,000 identities, those first that are nearest to a bound.

    What was made while nobody was known, or by an earlier version, counts for nobody.
    """
    found = client.get_usage()
    if has_new_keys(format):
        write_all(format, (), found)
        return
    rows = [
        {"identity": each.identity, **_row_of(count, format)}
        for each in found
        for count in each.stored
        if format != "table" or count.used != 0
    ]
    empty = "no identity has made anything that is there; what was made while nobody was known counts for nobody"
    write_all(format, ("identity", *STORED_COLUMNS), rows, empty=empty)


# -- a rules file ------------------------------------------------------------------------------------------------------


@access.command(
    short_help="Check a rules file.",
    epilog="""\b
Examples:
  pinlater access check rules.toml
  pinlater access check rules.toml && cp rules.toml /etc/pinlater/     servers read it again by themselves""",
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def check(file: Path) -> None:
    """Check a rules file as a server would read it, and list what in it has no effect.

    A mistake is named by its line and key, and the exit code is 1. No server is asked.
    """
    text = file.read_bytes()
    rules = _rules(file, text)
    lines = _Lines(text)
    for key, note in _without_effect(rules):
        click.echo(printable(f"{file}:{lines.of(key)}: {key}: {note}"))
    say(f"{file} can be used: {len(rules.rules)} rules, {len(lines.roles)} roles of its own")


def _rules(file: Path, text: bytes) -> AccessRules:
    """SystemExit, and each mistake is said."""
    try:
        return parse_rules(text, str(file))
    except ConfigInvalid as invalid:
        lines = _Lines(text)
        for mistake in invalid.mistakes:
            line = lines.of(mistake.key)
            where = f"{file}:{line}" if line else str(file)
            say(f"{where}: {mistake.key} = {shown(mistake.value)}; allowed: {mistake.allowed}")
        raise SystemExit(EXIT_FAILED) from None


class _Lines:
    """Where the tables of a rules file begin."""

    def __init__(self, text: bytes) -> None:
        self.roles: dict[str, int] = {}
        self._rules: list[int] = []
        for number, line in enumerate(text.decode("utf-8", "replace").splitlines(), 1):
            if re.match(r"\s*\[\[\s*rules\s*\]\]", line):
                self._rules.append(number)
            elif role := re.match(r"\s*\[\s*roles\s*\.\s*[\"']?([^\]\"']+?)[\"']?\s*\]", line):
                self.roles[role[1]] = number

    def of(self, key: str) -> int:
        """The line of the table that has this key; 0: not known."""
        if rule := re.match(r"rules\[(\d+)\]", key):
            at = int(rule[1])
            return self._rules[at - 1] if at <= len(self._rules) else 0
        return self.roles.get(key.removeprefix("roles.").partition(".")[0], 0)


def _without_effect(rules: AccessRules) -> Iterator[tuple[str, str]]:
    """What is never matched, or allows nothing that is not allowed already: its key, and why."""
    given = {role for rule in rules.rules for role in rule.roles}
    for name, grants in rules.roles.items():
        yield from ((f"roles.{name}", note) for grant in grants for note in _of_grant(grant))
    for name, grants in rules.roles.items():
        if name not in given and grants is not BUILT_IN_ROLES.get(name):
            yield f"roles.{name}", "no rule gives this role; only tokens can have it"
    for at, rule in enumerate(rules.rules, 1):
        key = f"rules[{at}]"
        for pattern in rule.who:
            kind, _, name = pattern.partition(":")
            if (kind == "token" and not is_token_name(name.replace("*", "x"))) or (kind == "cert" and not name):
                yield f"{key}.who", f"{pattern!r} is never matched: nothing can have that name"
        yield from ((key, note) for grant in rule.grants for note in _of_grant(grant))
        covered = next(
            (other for other, each in enumerate(rules.rules, 1) if other != at and _covers(each, rule)), None
        )
        if covered is not None and (covered < at or not _covers(rule, rules.rules[covered - 1])):
            yield key, f"it allows nothing that rules[{covered}] does not allow"


def _of_grant(grant: Grant) -> Iterator[str]:
    for pattern in grant.queues:
        if not is_queue_name(pattern.replace("*", "x")):
            yield f"queues: {pattern!r} is never matched: no queue can have that name"
    for pattern in grant.groups:
        if len(pattern.replace("*", "").encode()) > MAX_GROUP_BYTES or CONTROL_CHAR.search(pattern):
            yield f"groups: {pattern!r} is never matched: no job can have that group"
    if grant.groups != EVERY_GROUP and not {AccessAction.ENQUEUE, AccessAction.OPERATE} & set(grant.actions):
        yield "groups have no effect without enqueue or operate"
    if AccessAction.GATEWAY in grant.actions and EVERY_QUEUE not in grant.queues:
        yield "gateway counts only without queues: a gateway calls for all of them"
    if not grant.bodies and AccessAction.READ not in grant.actions:
        yield "bodies = false has no effect without read"


def _covers(one: Rule, other: Rule) -> bool:
    """Whether the first applies wherever the second does, and allows at least as much."""
    return (
        all(any(matches(pattern, narrower) for pattern in one.who) for narrower in other.who)
        and _is_wider(one.networks, other.networks)
        and set(other.roles) <= set(one.roles)
        and set(other.grants) <= set(one.grants)
    )


def _is_wider(one: Sequence[Network], other: Sequence[Network]) -> bool:
    if not one:
        return True
    return bool(other) and all(any(_is_within(each, wide) for wide in one) for each in other)


def _is_within(network: Network, wide: Network) -> bool:
    if isinstance(network, IPv4Network):
        return isinstance(wide, IPv4Network) and network.subnet_of(wide)
    return isinstance(wide, IPv6Network) and network.subnet_of(wide)


# -- what rules allow --------------------------------------------------------------------------------------------------


def _address_option(_context: click.Context, _param: click.Parameter, text: str | None) -> str | None:
    try:
        return None if text is None else str(ip_address(text))
    except ValueError:
        raise click.BadParameter(f"{text!r} is no address; allowed: such as 10.0.0.7 or fd00::7") from None


@access.command(
    short_help="Test whether a rules file lets an identity do something.",
    epilog="""\b
Examples:
  pinlater access test cert:web.mail.example enqueue mail-out --rules rules.toml
  pinlater access test anonymous consume mail --rules rules.toml --from 10.0.0.7
  pinlater access test token:web operate --role operator --rules rules.toml""",
)
@click.argument("identity", shell_complete=one_of("cert:", "token:", ANONYMOUS))
@click.argument("action", type=click.Choice(_ACTIONS))
@click.argument("queue", required=False)
@click.option(
    "--rules",
    "file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The rules file.",
)
@click.option(
    "--from",
    "address",
    metavar="ADDRESS",
    callback=_address_option,
    help="The caller's address. [default: outside of every network that a rule names]",
)
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="A role that the token has; repeatable.")
@click.option(
    "--group",
    metavar="GROUP",
    help='The group of a job that it makes so, "" for none. [default: whatever groups the rules allow]',
)
@output_option
def test(
    identity: str,
    action: str,
    queue: str | None,
    file: Path,
    address: str | None,
    roles: Sequence[str],
    group: str | None,
    format: str,
) -> None:
    """Test whether the rules of a file let IDENTITY do ACTION, on QUEUE or on the whole cluster, and by which of them.

    IDENTITY is cert:NAME, token:NAME or anonymous. The exit code is 0 where it may and 1 where it may not. No server is
    asked: the roles that a token was made with are given by --role.
    """
    if not (identity == ANONYMOUS or identity.startswith(("cert:", "token:"))):
        raise click.UsageError(f"{identity!r} is no identity; allowed: cert:NAME, token:NAME and {ANONYMOUS}")
    if queue is not None and not is_queue_name(queue):
        raise click.UsageError(f"no queue can have the name {queue!r}")
    rules = _rules(file, file.read_bytes())
    wanted, target = (AccessAction(action),), EVERY_QUEUE if queue is None else queue
    where = "the whole cluster" if queue is None else f"queue {queue}"
    if group is not None:
        where += f" in group {group}" if group else " without a group"
    found = [
        (how, grant)
        for how, grant in _ways(rules, identity, address or _NOWHERE, roles)
        if grant.allows(wanted, target, False)
        and (group is None or any(matches(pattern, group) for pattern in grant.groups))
    ]
    with_bodies = [each for each in found if each[1].bodies]
    by = next((how for how, _ in with_bodies or found), None)
    if format != "table":
        click.echo(json_text({"allowed": bool(found), "by": by, "bodies": bool(with_bodies)}))
    elif found:
        hidden = "" if with_bodies or AccessAction.READ not in wanted else ", without bodies and results"
        click.echo(printable(f"yes: {identity} may {action} on {where}{hidden}, by {by}"))
    else:
        click.echo(printable(f"no: {identity} may not {action} on {where}"))
    if not found:
        raise SystemExit(EXIT_FAILED)


def _ways(rules: AccessRules, identity: str, address: str, roles: Sequence[str]) -> Iterator[tuple[str, Grant]]:
    """What it is granted, and by what."""
    for name in roles:
        yield from ((f"its role {name}", grant) for grant in rules.roles.get(name, ()))
    for at, rule in enumerate(rules.rules, 1):
        if rule.applies([identity], [address]):
            for name in rule.roles:
                yield from ((f"role {name} of rules[{at}]", grant) for grant in rules.roles.get(name, ()))
            yield from ((f"rules[{at}]", grant) for grant in rule.grants)
