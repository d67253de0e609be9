"""The rules file: what it allows to whom, and what is said of a file with mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pinlater.access.rules import BUILT_IN_ROLES, parse_rules
from pinlater.access.rules_file import RulesFile
from pinlater.config.loader import ConfigInvalid
from pinlater.model import ANY_QUEUE, EVERY_QUEUE, AccessAction, Caller

RULES = b"""
[roles.mail-producer]
may = ["enqueue", "read"]
queues = ["mail-*", "late"]
bodies = false

[[rules]]
who = ["cert:*.mail.example", "token:web"]
roles = ["mail-producer"]

[[rules]]
who = ["anonymous"]
from = ["10.1.0.0/16", "2001:db8::/32"]
may = ["enqueue"]
queues = ["legacy"]

[[rules]]
who = ["token:root"]
roles = ["admin"]
"""
ENQUEUE, READ, ADMIN = (AccessAction.ENQUEUE,), (AccessAction.READ,), (AccessAction.ADMIN,)


def caller(identity: str, *addresses: str, roles: tuple[str, ...] = ()) -> Caller:
    return Caller(
        identity, roles, parse_rules(RULES, "rules.toml").grants([identity], roles, addresses or ["10.1.2.3"])
    )


def test_a_caller_may_what_its_role_allows_on_the_queues_that_match() -> None:
    web = caller("cert:a.mail.example")
    assert [web.may(ENQUEUE, queue) for queue in ("mail-eu", "mail-", "late", "mail", "pay")] == [True] * 3 + [
        False
    ] * 2
    assert web.may(READ, "late")
    assert not web.may(READ, "late", shows_bodies=True)
    assert not web.may(ADMIN, "late")


def test_what_concerns_the_cluster_needs_a_grant_for_all_queues() -> None:
    web, root = caller("token:web"), caller("token:root")
    assert (web.may(READ, ANY_QUEUE), web.may(READ, EVERY_QUEUE)) == (True, False)
    assert (root.may(READ, ANY_QUEUE), root.may(ADMIN, EVERY_QUEUE)) == (True, True)


@pytest.mark.parametrize(
    ("addresses", "may"),
    [
        (["10.1.255.1"], True),
        (["10.2.0.1"], False),
        (["::ffff:10.1.0.9"], True),
        (["2001:db8::7"], True),
        (["10.1.0.1", "10.1.0.2"], True),
        (["10.1.0.1", "192.0.2.1"], False),  # that of a gateway, and of its caller
        (["fe80::1%eth0"], False),
        ([""], False),
    ],
)
def test_a_network_counts_for_all_addresses_of_a_call(addresses: list[str], may: bool) -> None:
    assert caller("anonymous", *addresses).may(ENQUEUE, "legacy") is may


def test_who_is_in_no_rule_may_nothing_but_what_its_roles_allow() -> None:
    assert caller("cert:mail.example").grants == ()
    assert caller("token:x", roles=("operator",)).grants == tuple(BUILT_IN_ROLES["operator"])
    assert caller("token:x", roles=("no-such-role",)).grants == ()


def test_a_role_of_the_file_takes_the_place_of_the_built_in_one() -> None:
    rules = parse_rules(b'[roles.viewer]\nmay = ["read"]\nqueues = ["a"]', "rules.toml")
    (grant,) = rules.grants(["token:x"], ["viewer"], [])
    assert (grant.queues, grant.bodies) == (("a",), True)


def test_groups_are_those_of_any_grant_for_the_queue_and_all_where_none_says() -> None:
    rules = parse_rules(
        b'[roles.a]\nmay = ["enqueue"]\nqueues = ["mail"]\ngroups = ["acme*"]\n'
        b'[roles.none]\nmay = ["enqueue"]\ngroups = [""]\n'
        b'[roles.reads]\nmay = ["read"]',
        "rules.toml",
    )

    def refused(*roles: str, queue: str = "mail") -> list[str]:
        who = Caller("token:x", roles, rules.grants(["token:x"], roles, []))
        return [
            each for each in ("", "acme", "acme-*", "vip", "*") if who.group_refusal(ENQUEUE, queue, ["acme", each])
        ]

    assert refused("a") == ["", "vip", "*"]
    assert refused("a", "none", "reads") == ["vip", "*"]
    assert refused("a", "producer") == []
    assert refused("producer") == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("nonsense", "TOML"),
        ("[role.x]", "role = "),
        ("[roles.x]", "roles.x.may = None"),
        ('[roles.x]\nmay = ["eat"]', "enqueue, consume, read, operate, admin, gateway"),
        ('[roles."a b"]\nmay = ["read"]', "letters, digits"),
        ('[roles.x]\nmay = ["read"]\nqueues = []', "a list of queues"),
        ('[roles.x]\nmay = ["enqueue"]\ngroups = []', '"" for jobs without a group'),
        ('[roles.x]\nmay = ["enqueue"]\ngroups = "acme"', "roles.x.groups = 'acme'"),
        ('[roles.x]\nmay = ["enqueue"]\ngroups = ["a", 1]', "a list of groups"),
        ('[roles.x]\nmay = ["read"]\nbodies = 1', "true or false"),
        ('[roles.x]\nmay = ["read"]\nmax-queues = -1', "roles.x.max-queues = -1"),
        ('[roles.x]\nmay = ["read"]\nmax-flow-items = "many"', "a number of 1 or more; 0 for no bound of its own"),
        ('[roles.x]\nmay = ["read"]\nmax-tokens = true', "roles.x.max-tokens = True"),
        ('[[rules]]\nwho = ["anonymous"]\nroles = ["viewer"]\nmax-flows = 1', "only beside may"),
        ('[[rules]]\nroles = ["viewer"]', "rules[1].who"),
        ('[[rules]]\nwho = ["web"]\nroles = ["viewer"]', "cert:NAME, token:NAME and anonymous"),
        ('[[rules]]\nwho = ["anonymous"]', "may with a list of actions"),
        ('[[rules]]\nwho = ["anonymous"]\nroles = ["boss"]', "a role of this file"),
        ('[[rules]]\nwho = ["anonymous"]\nroles = ["viewer"]\nfrom = ["10.0.0.1/8"]', "a network as 10.0.0.0/8"),
        ('[[rules]]\nwho = ["anonymous"]\nroles = ["viewer"]\nqueues = ["a"]', "only beside may"),
        ('[[rules]]\nwho = ["anonymous"]\nroles = ["viewer"]\nmay_not = ["a"]', "only who, from, roles"),
        ("rules = 1", "tables [[rules]]"),
    ],
)
def test_a_mistake_is_told_with_its_key_and_what_is_allowed(text: str, told: str) -> None:
    with pytest.raises(ConfigInvalid) as error:
        parse_rules(text.encode(), "rules.toml")
    assert any(told in str(mistake) for mistake in error.value.mistakes), str(error.value)


def test_all_mistakes_are_told_at_once() -> None:
    with pytest.raises(ConfigInvalid) as error:
        parse_rules(b'[roles.x]\nmay = ["eat"]\n[[rules]]\nroles = ["y"]', "rules.toml")
    assert len(error.value.mistakes) == 3


def test_a_file_that_changes_counts_and_one_with_mistakes_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(RULES)
    file = RulesFile(path)
    before = file.rules
    assert not file.read_again()
    path.write_text("[[rules]]")
    assert (file.read_again(), file.rules) == (False, before)
    path.unlink()
    assert (file.read_again(), file.rules) == (False, before)
    path.write_bytes(RULES + b'\n[roles.new]\nmay = ["read"]')
    assert [file.read_again() for _ in range(3)] == [False, True, False]
    assert "new" in file.rules.roles


def test_a_file_that_is_being_written_allows_nothing_that_its_end_takes_back(tmp_path: Path) -> None:
    path = tmp_path / "rules.toml"
    path.write_bytes(b"")
    file = RulesFile(path)
    begun = b'[[rules]]\nwho = ["anonymous"]\nmay = ["read"]\n'
    for text in (begun, begun + b'queues = ["mail"]\n', begun + b'queues = ["mail"]\nbodies = false\n'):
        path.write_bytes(text)
        assert not file.read_again()
        assert not file.rules.rules
    assert file.read_again()
    assert not file.rules.rules[0].grants[0].bodies


SEVERAL = b"""
[[rules]]
who = ["cert:*.web.example"]
roles = ["producer"]

[[rules]]
who = ["cert:ops.example"]
from = ["10.0.0.0/8"]
roles = ["operator"]

[[rules]]
who = ["cert:b.web.example"]
roles = ["worker"]
"""


@pytest.mark.parametrize(
    ("names", "address", "judged"),
    [
        (["cert:other", "cert:a.web.example"], "10.1.2.3", ["cert:a.web.example"]),
        (
            ["cert:other", "cert:ops.example", "cert:a.web.example"],
            "10.1.2.3",
            ["cert:a.web.example", "cert:ops.example"],
        ),
        (["cert:ops.example", "cert:a.web.example"], "192.0.2.1", ["cert:a.web.example"]),
        (["cert:a.web.example", "cert:b.web.example"], "10.1.2.3", ["cert:a.web.example", "cert:b.web.example"]),
        (["cert:b.web.example", "cert:a.web.example"], "10.1.2.3", ["cert:b.web.example"]),
        (["cert:other", "cert:another"], "10.1.2.3", ["cert:other"]),
        (["token:x"], "10.1.2.3", ["token:x"]),
    ],
)
def test_the_names_that_count_are_those_to_which_rules_give_something(
    names: list[str], address: str, judged: list[str]
) -> None:
    assert parse_rules(SEVERAL, "rules.toml").judged_by(names, [address]) == judged
