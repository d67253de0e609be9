"""`pinlater access check` and `access test`: what a rules file means, before a server reads it."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from pinlater.cli import main

RULES = """\
[roles.mail-producer]
may = ["enqueue", "read"]
queues = ["mail-*"]
bodies = false

[roles.unused]
may = ["read"]

[[rules]]
who = ["cert:*.mail.example", "token:web"]
from = ["10.0.0.0/8", "fd00::/8"]
roles = ["mail-producer"]

[[rules]]
who = ["anonymous"]
may = ["enqueue"]
queues = ["legacy"]

[[rules]]
who = ["token:acme"]
may = ["enqueue"]
groups = ["acme*"]
"""


def access(folder: Path, rules: str, *arguments: str, code: int = 0) -> Result:
    (folder / "rules.toml").write_text(rules)
    result = CliRunner().invoke(main, ["access", *arguments])
    assert result.exit_code == code, result.output
    return result


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        (
            "cert:web.mail.example enqueue mail-out --from 10.1.2.3",
            "yes: .* on queue mail-out, by role mail-producer of rules[1]",
        ),
        (
            "cert:web.mail.example read mail-out --from 10.1.2.3",
            "on queue mail-out, without bodies and results, by role",
        ),
        ("cert:web.mail.example enqueue mail-out --from fd00::7", "yes: "),
        ("cert:web.mail.example enqueue mail-out --from 192.0.2.1", "no: "),
        ("cert:web.mail.example enqueue mail-out", "no: "),
        ("cert:mail.example enqueue mail-out --from 10.1.2.3", "no: "),
        ("cert:web.mail.example enqueue mail --from 10.1.2.3", "no: "),
        ("cert:web.mail.example enqueue --from 10.1.2.3", "no: .* on the whole cluster"),
        ("cert:web.mail.example consume mail-out --from 10.1.2.3", "no: "),
        ("anonymous enqueue legacy", "yes: anonymous may enqueue on queue legacy, by rules[2]"),
        ("anonymous read legacy", "no: anonymous may not read on queue legacy"),
        ("token:ops admin --role admin", "yes: token:ops may admin on the whole cluster, by its role admin"),
        ("token:ops admin", "no: "),
        ("token:ops read x --role nothing", "no: "),
        ("token:acme enqueue mail", "yes: token:acme may enqueue on queue mail, by rules[3]"),
        ("token:acme enqueue mail --group acme-2", "yes: .* on queue mail in group acme-2, by rules[3]"),
        ("token:acme enqueue mail --group vip", "no: token:acme may not enqueue on queue mail in group vip"),
        ("token:acme enqueue mail --group=", "no: token:acme may not enqueue on queue mail without a group"),
        ("token:acme enqueue mail --group vip --role producer", "yes: .* in group vip, by its role producer"),
    ],
)
def test_it_says_whether_rules_allow_something_and_by_which(tmp_path: Path, line: str, answer: str) -> None:
    start, _, rest = answer.partition(".*")
    result = access(
        tmp_path, RULES, "test", *line.split(), "--rules", "rules.toml", code=1 if answer.startswith("no") else 0
    )
    assert start in result.stdout
    assert rest in result.stdout


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("web enqueue mail", "'web' is no identity; allowed: cert:NAME"),
        ("anonymous eat mail", "'eat' is not one of"),
        ("anonymous read m/il", "no queue can have the name"),
        ("anonymous read mail --from here", "'here' is no address"),
    ],
)
def test_what_cannot_be_asked_is_refused(tmp_path: Path, line: str, why: str) -> None:
    assert why in access(tmp_path, RULES, "test", *line.split(), "--rules", "rules.toml", code=2).stderr


def test_a_file_with_mistakes_names_each_by_its_line_and_key(tmp_path: Path) -> None:
    wrong = RULES.replace('"read"]\n\n', '"eat"]\n\n').replace('"anonymous"', '"nobody"')
    said = access(tmp_path, wrong, "check", "rules.toml", code=1).stderr
    assert said.startswith("pinlater: rules.toml:6: roles.unused.may = 'eat'; allowed: a list of enqueue, consume")
    assert "\npinlater: rules.toml:14: rules[2].who = 'nobody'; allowed: a list of cert:NAME" in said
    assert "at line 3" in access(tmp_path, "\n\n[roles\nx = 1", "check", "rules.toml", code=1).stderr


@pytest.mark.parametrize(
    ("rules", "note"),
    [
        (RULES, "rules.toml:6: roles.unused: no rule gives this role; only tokens can have it"),
        ('[roles.x]\nmay = ["read"]\nqueues = ["m/*"]', "rules.toml:1: roles.x: queues: 'm/*' is never matched"),
        ('[roles.x]\nmay = ["gateway"]\nqueues = ["m*"]', "gateway counts only without queues"),
        (
            '[roles.x]\nmay = ["enqueue"]\ngroups = ["a\\n"]',
            "groups: 'a\\n' is never matched: no job can have that group",
        ),
        ('[roles.x]\nmay = ["read"]\ngroups = ["a"]', "groups have no effect without enqueue or operate"),
        ('[roles.x]\nmay = ["enqueue"]\nbodies = false', "bodies = false has no effect without read"),
        ('[[rules]]\nwho = ["token:a b"]\nroles = ["viewer"]', "rules[1].who: 'token:a b' is never matched"),
        (
            '[[rules]]\nwho = ["token:a*"]\nroles = ["viewer", "producer"]\n'
            '[[rules]]\nwho = ["token:ab"]\nfrom = ["10.0.0.0/8"]\nroles = ["viewer"]',
            "rules.toml:4: rules[2]: it allows nothing that rules[1] does not allow",
        ),
    ],
)
def test_what_has_no_effect_is_said(tmp_path: Path, rules: str, note: str) -> None:
    result = access(tmp_path, rules, "check", "rules.toml")
    assert note in result.stdout
    assert result.stdout.count("\n") == (1 if rules is RULES else 2 - ("[[rules]]" in rules))
    assert "rules.toml can be used" in result.stderr


def test_rules_that_allow_different_things_are_no_remark(tmp_path: Path) -> None:
    rules = "\n".join(
        f'[[rules]]\nwho = ["{who}"]\nfrom = ["{network}"]\nroles = ["{role}"]'
        for who, network, role in (
            ("token:a*", "10.0.0.0/8", "viewer"),
            ("token:ab", "11.0.0.0/8", "viewer"),
            ("token:ab", "::/0", "viewer"),
            ("token:ab", "10.1.0.0/16", "producer"),
            ("token:*", "10.1.0.0/16", "viewer"),
        )
    )
    assert access(tmp_path, rules, "check", "rules.toml").stdout == ""
