"""The settings of a server process's parts, from its one configuration; `shard_factory` has those of the shards."""

from __future__ import annotations

from collections.abc import Callable
from inspect import get_annotations
from typing import TypeVar

from pinlater.access.fair_use import UseLimits
from pinlater.alarms.webhooks import WebhookSettings
from pinlater.bodies.body_engine import BodySettings
from pinlater.bodies.placement import PlacementRules
from pinlater.client.client_tls import Tls
from pinlater.config import Config
from pinlater.config.body_rules import default_rules, parse_rule, tier_urls
from pinlater.config.webhook_urls import webhook_target
from pinlater.flows.flow_engine import FlowSettings
from pinlater.model.owner_bounds import OwnerBounds
from pinlater.server.limits import ServerLimits
from pinlater.server.tls import TlsFiles
from pinlater.service import ServiceSettings

ANSWER_MARGIN_BYTES = 64 * 1024
"""What an answer may have around its bodies: the service counts less than the frame's bound."""

T = TypeVar("T")


def settings_alike(part: Callable[..., T], config: Config, prefix: str = "", **others: object) -> T:
    """The settings of a part: these others; and each that the configuration has too, its name behind `prefix`. Seconds
    of the part are milliseconds there.
    """
    for name in get_annotations(part).keys() - others.keys():
        seconds = name.removesuffix("_s")
        if hasattr(config, prefix + name):
            others[name] = getattr(config, prefix + name)
        elif seconds != name and hasattr(config, f"{prefix}{seconds}_ms"):
            others[name] = getattr(config, f"{prefix}{seconds}_ms") / 1000
    return part(**others)


def service_settings(config: Config) -> ServiceSettings:
    return settings_alike(
        ServiceSettings,
        config,
        num_priority_levels=config.priorities,
        max_answer_bytes=max(config.max_frame_bytes - ANSWER_MARGIN_BYTES, config.max_frame_bytes // 2),
        long_call_ms=config.long_call_timeout_ms,
    )


def use_limits(config: Config) -> UseLimits:
    return UseLimits(
        config.max_identity_connections,
        config.max_identity_calls,
        config.max_identity_buffered_bytes,
        config.identity_calls_per_second,
    )


def owner_bounds(config: Config) -> OwnerBounds:
    """Of identities whose roles say nothing."""
    return settings_alike(OwnerBounds, config, "max_identity_")


def flow_settings(config: Config) -> FlowSettings | None:
    """None: this server has no flows."""
    if config.flows == "none":
        return None
    url = f"sqlite:///{config.data.rstrip('/')}/flows.db" if config.flows == "sqlite" else config.flows
    return FlowSettings(url=url, callback_hosts=config.flow_callback_hosts, callback_secret=config.flow_callback_secret)


def webhook_settings(config: Config) -> WebhookSettings:
    return WebhookSettings(
        targets=[webhook_target(each) for each in config.alarm_webhook],
        secret=config.alarm_webhook_secret,
        links=config.alarm_links,
        with_errors=config.alarm_webhook_errors == "shown",
    )


def body_settings(config: Config) -> BodySettings | None:
    """None: all bodies are in their shards."""
    tiers = tier_urls(config.bodies)
    if not tiers:
        return None
    rules = [parse_rule(text) for text in config.body_rules] or default_rules(tiers[0].name)
    return settings_alike(
        BodySettings,
        config,
        "body_",
        tiers=tiers,
        rules=PlacementRules(rules, [tier.name for tier in tiers]),
        max_in_shard=config.body_in_shard_bytes,
    )


def tls_files(config: Config) -> TlsFiles | None:
    """None: the port is plain."""
    return (
        TlsFiles(config.tls_cert, config.tls_key or config.tls_cert, config.tls_client_ca) if config.tls_cert else None
    )


def peer_files(config: Config) -> TlsFiles:
    """On ports between servers, each of which shows its certificate."""
    return TlsFiles(config.tls_cert, config.tls_key or config.tls_cert, config.tls_ca or None)


def peer_tls(config: Config) -> Tls | None:
    """How a server calls the others of its cluster."""
    return Tls(config.tls_ca or None, config.tls_cert, config.tls_key or None) if config.tls_cert else None


def server_limits(config: Config) -> ServerLimits:
    return settings_alike(ServerLimits, config)
