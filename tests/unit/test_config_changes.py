"""What is told of two configurations."""

from __future__ import annotations

from dataclasses import replace

from pinlater.config import Config, StoreConfig, load
from pinlater.config.settings import config_diff

A, B = StoreConfig("a", "redis://h/0"), StoreConfig("b", "redis://h/1")


def config(*stores: StoreConfig) -> Config:
    return replace(load({}, {}).config, stores=stores)


def test_nothing_changed() -> None:
    assert config_diff(config(A, B), config(B, A)).facts() == {}


def test_each_kind_of_change_to_a_shard() -> None:
    drained, moved = replace(A, dequeue_only=True), replace(A, url="redis://other/0")
    assert config_diff(config(A), config(A, B)).facts() == {"shards_added": ["b"]}
    assert config_diff(config(A, B), config(A)).facts() == {"shards_removed": ["b"]}
    assert config_diff(config(A), config(moved)).facts() == {"shards_moved": ["a"]}
    assert config_diff(config(A), config(drained)).facts() == {"dequeue_only": ["a"]}
    assert config_diff(config(drained), config(A)).facts() == {"takes_jobs_again": ["a"]}


def test_settings_are_named() -> None:
    assert config_diff(config(A), replace(config(A), claim_timeout_ms=9_000)).facts() == {"settings": ["claim-timeout"]}
