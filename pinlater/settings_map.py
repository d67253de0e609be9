"""The settings of a server process's parts, from its one configuration; `shard_factory` has those of the shards."""

from __future__ import annotations

from pinlater.access.fair_use import UseLimits
from pinlater.bodies.body_engine import BodySettings
from pinlater.bodies.placement import PlacementRules
from pinlater.client.client_tls import Tls
from pinlater.config import Config
from pinlater.config.body_rules import default_rules, parse_rule, tier_urls
from pinlater.flows.flow_engine import FlowSettings
from pinlater.maintenance import MaintenanceSettings
from pinlater.model.owner_bounds import OwnerBounds
from pinlater.server.limits import ServerLimits
from pinlater.server.tls import TlsFiles
from pinlater.service import ServiceSettings

ANSWER_MARGIN_BYTES = 64 * 1024
"""What an answer may have around its bodies: the service counts less than the frame's bound."""


def service_settings(config: Config) -> ServiceSettings:
    return ServiceSettings(
        num_priority_levels=config.priorities,
        max_jobs=config.max_jobs,
        max_body_bytes=config.max_body_bytes,
        max_answer_bytes=max(config.max_frame_bytes - ANSWER_MARGIN_BYTES, config.max_frame_bytes // 2),
        claim_timeout_ms=config.claim_timeout_ms,
        max_claim_timeout_ms=config.max_claim_timeout_ms,
        release_grace_ms=config.release_grace_ms,
        succeeded_ttl_ms=config.succeeded_ttl_ms,
        failed_ttl_ms=config.failed_ttl_ms,
        crash_budget=config.crash_budget,
        admin_password_hash=config.admin_password_hash,
        max_wait_ms=config.max_wait_ms,
        max_waiters=config.max_waiters,
        long_call_ms=config.long_call_timeout_ms,
    )


def maintenance_settings(config: Config) -> MaintenanceSettings:
    return MaintenanceSettings(
        interval_ms=config.maintenance_interval_ms,
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
    return OwnerBounds(
        flows=config.max_identity_flows,
        flow_items=config.max_identity_flow_items,
        queues=config.max_identity_queues,
        schedules=config.max_identity_schedules,
        tokens=config.max_identity_tokens,
    )


def flow_settings(config: Config) -> FlowSettings | None:
    """None: this server has no flows."""
    if config.flows == "none":
        return None
    url = f"sqlite:///{config.data.rstrip('/')}/flows.db" if config.flows == "sqlite" else config.flows
    return FlowSettings(url=url, callback_hosts=config.flow_callback_hosts, callback_secret=config.flow_callback_secret)


def body_settings(config: Config) -> BodySettings | None:
    """None: all bodies are in their shards."""
    tiers = tier_urls(config.bodies)
    if not tiers:
        return None
    rules = [parse_rule(text) for text in config.body_rules] or default_rules(tiers[0].name)
    return BodySettings(
        tiers=tiers,
        rules=PlacementRules(rules, [tier.name for tier in tiers]),
        max_in_shard=config.body_in_shard_bytes,
        put_ms=config.body_put_ms,
        get_ms=config.body_get_ms,
        tries=config.body_tries,
        ahead_ms=config.body_ahead_ms,
        cache_bytes=config.body_cache_bytes,
        orphan_age_ms=config.body_orphan_age_ms,
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
    return ServerLimits(
        max_frame_bytes=config.max_frame_bytes,
        max_unframed_bytes=config.max_unframed_bytes,
        max_connections=config.max_connections,
        max_peer_connections=config.max_peer_connections,
        max_frames_in_flight=config.max_frames_in_flight,
        max_buffered_bytes=config.max_buffered_bytes,
        max_connection_answers_bytes=config.max_connection_answers_bytes,
        max_peer_answers_bytes=config.max_peer_answers_bytes,
        max_body_bytes=config.max_body_bytes,
        idle_timeout_s=config.idle_timeout_ms / 1000,
        half_sent_timeout_s=config.half_sent_timeout_ms / 1000,
        write_timeout_s=config.write_timeout_ms / 1000,
        drain_linger_s=config.drain_linger_ms / 1000,
        max_container=config.max_container,
        max_steps=config.max_steps,
    )
