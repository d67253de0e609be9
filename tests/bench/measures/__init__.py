"""Every measure by its name: the module of that name has a `measure`, and its docstring says what it measures.

A measure that is not written here is not measured.
"""

from __future__ import annotations

from importlib import import_module

from tests.bench.run import Measure

NAMES = (
    "cycle",
    "shards",
    "enqueue",
    "single",
    "lone",
    "plain",
    "http",
    "dashboard",
    "fair_use",
    "tls",
    "single_cycles",
    "processes",
    "drain",
    "worker_drain",
    "worker_defaults",
    "peers",
    "kits",
    "together",
    "pickup",
    "queues_pickup",
    "queues_rate",
    "outbox",
    "delayed",
    "keyed",
    "fairness",
    "result_wait",
    "far_ahead",
    "tags",
    "schedules",
    "flows",
    "idle",
    "idle_queues",
    "moderate",
    "sqlite",
    "mariadb",
    "mariadb_single",
    "postgres",
    "dynamodb",
    "growth",
    "maintenance",
    "memory",
    "cost",
    "bodies",
    "unread",
)
"""In the order in which they are measured."""


def measure_of(name: str) -> Measure:
    measure: Measure = import_module(f"{__name__}.{name}").measure
    return measure


def what_is(name: str) -> str:
    """The first line of the module's docstring."""
    return (import_module(f"{__name__}.{name}").__doc__ or "").splitlines()[0]
