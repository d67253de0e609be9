"""Files about flows: what they come to, and how each mistake is told."""

from __future__ import annotations

import io
from pathlib import Path

import click
import pytest

from pinlater.cli.flow_files import ItemKeys, read_flow, read_lines
from pinlater.model.flow_words import (
    Applet,
    AppletKind,
    CompletionCallback,
    NewFlow,
    NewItem,
    OnFailure,
    Stage,
)

WHOLE = """\
name = "payroll"
dedupe_key = "2026-11"
ttl = "14d"
on_failure = "stop-flow"
on_complete = { queue = "reports", job = "report_done" }

[metadata]
month = "2026-11"

[[stage]]
name = "calculate"
queue = "payroll"
job = "calculate_payroll"
max_failures = 3
backoff = "2h"
priority = 2
group = "{user}"
seal = "now"
items = [{ user = 1, day = 2026-11-23 }, { user = 2 }]
dedupe_key_from = "user"

[[stage]]
name = "pay"
parent = "calculate"
queue = "checks"
payload = "{user: payload.user}"
final = true

[[stage]]
name = "split"
parent = "pay"
queue = "parts"
applet = { job = "splitter", queue = "splits" }
seal = "manual"

[[stage]]
name = "each"
parent = "split"
queue = "parts"
applet = "list"
backoff = "0"
"""


def read(folder: Path, text: str, name: str | None = None) -> NewFlow:
    path = folder / "flow.toml"
    path.write_text(text)
    return read_flow(path, name)


def test_all_of_a_file_is_in_the_flow(tmp_path: Path) -> None:
    assert read(tmp_path, WHOLE) == NewFlow(
        "payroll",
        [
            Stage(
                *("calculate", "calculate_payroll", "payroll"),
                max_failures=3,
                backoff_ms=7_200_000,
                max_backoff_ms=7_200_000,
                group="{user}",
                priority=2,
            ),
            Stage("pay", "", "checks", "calculate", Applet(AppletKind.MAP, "{user: payload.user}"), is_final=True),
            Stage(
                *("split", "", "parts", "pay"),
                Applet(AppletKind.JOB, job="splitter", queue="splits"),
                keeps_open=True,
            ),
            Stage("each", "", "parts", "split", Applet(AppletKind.LIST), backoff_ms=0),
        ],
        dedupe_key="2026-11",
        metadata={"month": "2026-11"},
        on_complete=CompletionCallback("reports", "report_done"),
        on_failure=OnFailure.STOP_FLOW,
        ttl_ms=14 * 24 * 3_600_000,
        items={"calculate": [NewItem(b'{"user": 1, "day": "2026-11-23"}', "1"), NewItem(b'{"user": 2}', "2")]},
        sealed=["calculate"],
    )


def test_a_short_file_has_the_defaults_of_a_flow(tmp_path: Path) -> None:
    short = '[[stage]]\nname = "send"\nqueue = "mail"\n'
    assert read(tmp_path, short, "mails") == NewFlow("mails", [Stage("send", "", "mail")], sealed=[])


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('ttl = "14d"', 'tll = "14d"', "flow.toml: 'tll' is unknown; allowed: a known key (did you mean ttl?)"),
        ('ttl = "14d"', "ttl = 14", "flow.toml: ttl is 14; allowed: a text in quotes"),
        ('ttl = "14d"', 'ttl = "14 weeks"', "flow.toml: ttl is '14 weeks'; allowed: 0s to"),
        ('name = "payroll"', "", "flow.toml: it has no name"),
        ('"stop-flow"', '"stop"', "on_failure is 'stop'; allowed: go-on, stop-stage, stop-flow"),
        ('job = "report_done" }', 'jobb = "x" }', "flow.toml: on_complete: 'jobb' is unknown"),
        ('queue = "reports", job', 'url = "https://a", queue = "reports", job', "on_complete: give either queue"),
        ('month = "2026-11"', "month = 11", "flow.toml: metadata: month is 11; allowed: a text in quotes"),
        ("max_failures = 3", "max_failure = 3", "[[stage]] calculate: 'max_failure' is unknown; allowed: a known key"),
        ("max_failures = 3", 'max_failures = "3"', "[[stage]] calculate: max_failures is '3'; allowed: a whole number"),
        ("max_failures = 3", "max_failures = true", "max_failures is True; allowed: a whole number"),
        ("max_failures = 3", 'on_failure = "go-on"', "'on_failure' is unknown; it stands above the stages; allowed"),
        ('queue = "payroll"', "", "[[stage]] calculate: it has no queue"),
        ('name = "pay"\n', "", "[[stage]] 2: it has no name"),
        ('seal = "now"', 'seal = "parent"', "[[stage]] calculate: seal is 'parent'; allowed: manual, now"),
        ('seal = "manual"', 'seal = "now"', "[[stage]] split: seal is 'now'; allowed: manual, parent"),
        ("priority = 2", 'payload = "x"', "payload makes items out of those of the parent, and the stage has none"),
        ('applet = "list"', 'applet = "map"', "applet is 'map'; allowed: \"list\", or { job ="),
        ('applet = "list"', 'applet = "list"\npayload = "x"', "give one of payload and applet"),
        ('"splitter", queue = "splits"', '"splitter"', "[[stage]] split: applet: it has no queue"),
        ("{ user = 2 }", "{ user = nan }", "[[stage]] calculate: item 2: Out of range"),
        ("{ user = 2 }", "{ name = 2 }", "[[stage]] calculate: item 2: the payload has no user, which is to be a key"),
        ("final = true", 'final = "yes"', "[[stage]] pay: final is 'yes'; allowed: true or false"),
        ("[metadata]", "[metadata", "flow.toml: no TOML ("),
        ('[metadata]\nmonth = "2026-11"', 'stage = "x"', "no TOML"),
    ],
)
def test_a_mistake_names_the_table_and_the_key(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in WHOLE
    with pytest.raises(click.UsageError) as refused:
        read(tmp_path, WHOLE.replace(old, new, 1))
    assert told in refused.value.message
    assert str(tmp_path) in refused.value.message


def test_what_is_no_file_of_a_flow_is_told(tmp_path: Path) -> None:
    for content, told in (
        (b"", "there is no stage"),
        (b"\xff", "no UTF-8"),
        (b"stage = 1", "stage is 1; allowed: a list"),
        (b"stage = [1]", "[[stage]] 1: 1 is no table"),
        (b'[[stage]]\nname = "a"\nqueue = "q"\nitems = [' + b"1," * 1_001 + b"]", "more than 1,000 items"),
        (b"a = " + b"[" * 100_000, "no TOML"),
    ):
        path = tmp_path / "flow.toml"
        path.write_bytes(content)
        with pytest.raises(click.UsageError) as refused:
            read_flow(path, "x")
        assert told in refused.value.message
    with pytest.raises(click.UsageError, match="No such file"):
        read_flow(tmp_path / "none.toml", None)


def lines(text: bytes, keys: ItemKeys | None = None) -> list[tuple[int, NewItem]]:
    return [(line.number, line.item) for line in read_lines(io.BytesIO(text), "in", keys or ItemKeys())]


def test_lines_are_items_as_they_are_written() -> None:
    assert lines(b'{"b": 1.50, "a":"\\u00e9"} \r\n\n  \n[2]') == [
        (1, NewItem(b'{"b": 1.50, "a":"\\u00e9"}')),
        (4, NewItem(b"[2]")),
    ]
    by_field = ItemKeys(dedupe_from="user.id", serialize_from="team")
    (item,) = [each for _, each in lines(b'{"user": {"id": 7}, "team": "a"}', by_field)]
    assert (item.dedupe_key, item.serialize_key) == ("7", "a")
    keyed = lines(b'{"dedupe_key": "x", "payload": {"a":  1.0}}', ItemKeys(keyed=True))
    assert keyed == [(1, NewItem(b'{"a":  1.0}', "x"))]


@pytest.mark.parametrize(
    ("text", "keys", "told"),
    [
        (b"{", ItemKeys(), "allowed: JSON ("),
        (b'"\xff"', ItemKeys(), "allowed: JSON ("),
        (b"NaN", ItemKeys(), "allowed: JSON ("),
        (b"[" * 60_000, ItemKeys(), "allowed: JSON ("),
        (b'"%b"' % (b"x" * 70_000), ItemKeys(), "is '70002 bytes'; allowed: up to 65536"),
        (b'"%b"' % (b"x" * 200_000), ItemKeys(), "more than 131072 bytes"),
        (b"[1]", ItemKeys("user"), "the payload has no user"),
        (b'{"user": null}', ItemKeys("user"), "user is None, and no key; allowed: a text or a whole number"),
        (b'{"user": true}', ItemKeys("user"), "user is True, and no key"),
        (b'{"user": ""}', ItemKeys("user"), "user is '', and no key"),
        (b'{"user": "%b"}' % (b"x" * 201), ItemKeys("user"), "dedupeKey is"),
        (b'{"user": "@x"}', ItemKeys("", "user"), "serializeKey is '@x'"),
        (b'{"user": 1}', ItemKeys(keyed=True), "no object of payload, dedupe_key and serialize_key"),
        (b'{"payload": 1, "dedupe_key": 1}', ItemKeys(keyed=True), "Expected `str`, got `int`"),
        (b'{"payload": {,}}', ItemKeys(keyed=True), "no object of payload"),
        (b'{"payload": "\xff"}', ItemKeys(keyed=True), "allowed: JSON ("),
    ],
)
def test_a_bad_line_is_told_by_its_number_behind_those_before_it(text: bytes, keys: ItemKeys, told: str) -> None:
    good = b'{"payload": 0}' if keys.keyed else b'{"user": "a"}'
    found = read_lines(io.BytesIO(good + b"\n\n" + text + b"\n"), "in.jsonl", keys)
    assert next(found).number == 1
    with pytest.raises(click.UsageError) as refused:
        next(found)
    assert refused.value.message.startswith("in.jsonl, line 3: ")
    assert told in refused.value.message
