"""Rules that say which bodies go to which tier, and the settings that have them."""

from __future__ import annotations

import pytest

from pinlater.bodies.placement import Placement, PlacementRules
from pinlater.config import ConfigInvalid
from pinlater.config.body_rules import BodyTierRule, default_rules, parse_rule, shown_url, tier_urls
from pinlater.config.loader import load
from pinlater.errors import BodyTooLarge
from pinlater.job_limits import JobLimits
from pinlater.model.body_reference import BodyReference, BodyRule, body_length

KIB, MIN_MS = 1024, 60_000


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("s3: size > 256KiB", BodyTierRule("s3", above_bytes=256 * KIB)),
        (" s3 :  size>1  and delay  > 10m ", BodyTierRule("s3", above_bytes=1, above_ms=10 * MIN_MS)),
        ("cold: queue mails_* and caller shop-?", BodyTierRule("cold", queue="mails_*", caller="shop-?")),
        ("shard: queue urgent", BodyTierRule("shard", queue="urgent")),
    ],
)
def test_a_rule_is_read_and_written(text: str, rule: BodyTierRule) -> None:
    assert parse_rule(text) == rule
    assert parse_rule(rule.text) == rule


@pytest.mark.parametrize(
    "text",
    ["", "s3", "s3:", "S3: size > 1", "s3: size < 1", "s3: size > 1TiB", "s3: delay > 5", "s3: size > 1 or queue a"],
)
def test_what_is_no_rule_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse_rule(text)


def test_the_first_rule_that_applies_counts_and_that_of_the_queue_before_all() -> None:
    rules = PlacementRules(
        [
            parse_rule("shard: queue urgent_*"),
            parse_rule("hot: caller shop-* and size > 1KiB"),
            parse_rule("cold: delay > 10m and size > 4KiB"),
            parse_rule("missing: size > 64KiB"),
            parse_rule("cold: size > 256KiB"),
        ],
        ["hot", "cold"],
    )
    assert rules.names_callers
    assert rules.place("urgent_mail", 10**6, 0, "") is None
    assert rules.place("mail", 2 * KIB, 0, "shop-1") == Placement("hot", BodyRule.SIZE | BodyRule.CALLER)
    assert rules.place("mail", 5 * KIB, 10 * MIN_MS, "") is None
    assert rules.place("mail", 5 * KIB, 10 * MIN_MS + 1, "") == Placement("cold", BodyRule.SIZE | BodyRule.DELAY)
    assert rules.place("mail", 10**6, 0, "") is None  # its tier is not there
    assert rules.place("mail", 300, 0, "", "cold: size > 255B") == Placement("cold", BodyRule.SIZE | BodyRule.SETTING)
    assert rules.place("mail", 255, 0, "", "cold: size > 0B") is None
    assert rules.place("mail", 10**6, 10**9, "shop-1", "shard") is None


def test_defaults_take_what_is_large_and_what_waits() -> None:
    rules = PlacementRules(default_rules("s3"), ["s3"])
    assert rules.place("mail", 256 * KIB, 0, "") is None
    assert rules.place("mail", 256 * KIB + 1, 0, "") is not None
    assert rules.place("mail", 4 * KIB + 1, 10 * MIN_MS, "") is None
    assert rules.place("mail", 4 * KIB + 1, 10 * MIN_MS + 1, "") is not None


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"bodies": ["ftp://x/y"]}, "s3://BUCKET/PREFIX"),
        ({"bodies": ["s3://a/b", "s3://c/d"]}, "NAME=URL"),
        ({"bodies": ["shard=s3://a/b"]}, "NAME=URL"),
        ({"body-rules": ["s3: size > 1"]}, "nothing without bodies"),
        ({"bodies": ["s3://a/b"], "body-rules": ["gs: size > 1"]}, "a rule for one of: s3, shard"),
        ({"bodies": ["s3://a/b"], "body-rules": ["s3: big"]}, "size > 256KiB"),
        ({"max-body": "10MiB"}, "with a max-frame of 20MiB"),
    ],
)
def test_mistakes_of_settings_say_what_to_do(flags: dict[str, str | list[str]], told: str) -> None:
    with pytest.raises(ConfigInvalid) as mistake:
        load(flags, {})
    assert told in str(mistake.value)


def test_tiers_have_names_and_show_no_secrets() -> None:
    loaded = load({"bodies": ["hot=file:///srv/hot", "s3://b/p?secret_access_key=hidden"]}, {})
    assert [tier.name for tier in tier_urls(loaded.config.bodies)] == ["hot", "s3"]
    assert shown_url("s3://b/p?secret_access_key=hidden") == "s3://b/p"


def test_a_body_that_is_too_large_names_the_setting_that_raises_its_bound() -> None:
    limits = JobLimits(3, 1_000, 10)
    with pytest.raises(BodyTooLarge, match="max_body of the queue, which goes up to 1000, the --max-body"):
        limits.body(bytes(2_000), 500)
    with pytest.raises(BodyTooLarge, match="--max-body of the server, which goes up to half of its --max-frame"):
        limits.body(bytes(2_000), 1_000)


def test_a_reference_says_where_why_and_how_long() -> None:
    reference = BodyReference.new("s3", "mail", b"x" * 70_000, 1_790_000_000_123, BodyRule.SIZE | BodyRule.DELAY)
    parts = reference.parts
    assert (parts.tier, parts.queue, parts.stored_at_ms, parts.length) == ("s3", "mail", 1_790_000_000_123, 70_000)
    assert reference.text == f"s3::mail::1790000000123::{parts.id}"
    assert reference.described == f"{reference.text} (size, delay)"
    assert body_length(reference) == 70_000
    assert body_length(bytes(reference)) == len(reference) == 31 + len("s3:mail")
    assert reference != BodyReference.new("s3", "mail", b"x" * 70_000, 1_790_000_000_123, BodyRule.SIZE)
