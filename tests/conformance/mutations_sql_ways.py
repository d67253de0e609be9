"""Short ways to write mutations of SQL statements and of the steps around them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinlater.backends.sql.records import load_statements
from tests.conformance.mutation import Mutation

DIALECTS = (("sqlite", "?"), ("mysql", "%s"), ("postgres", "%s"))


def sql(statement: str, old: str, new: str, test: Callable[..., Any], **given: Any) -> list[Mutation]:
    """The same in all dialects; `$` stands for a value that is bound."""
    return [
        Mutation(store, statement, _whole(store, statement, old, value), new.replace("$", value), test, given)
        for store, value in DIALECTS
    ]


def _whole(store: str, statement: str, old: str, value: str) -> str:
    """With the plus that keeps PostgreSQL from an index."""
    old = old.replace("$", value)
    return f"+{old}" if store == "postgres" and f"+{old}" in _POSTGRES[statement] else old


_POSTGRES = load_statements("postgres.sql")


def only(store: str, statement: str, old: str, new: str, test: Callable[..., Any], **given: Any) -> list[Mutation]:
    """In one dialect."""
    return [Mutation(store, statement, old, new, test, given)]


def lock(statement: str, old: str, test: Callable[..., Any], **given: Any) -> list[Mutation]:
    """A lock of the dialects that have row locks."""
    return [
        Mutation(store, statement, old, "", test, given, tries=50)
        for store in ("mysql", "postgres")
        if statement in load_statements(f"{store}.sql")
    ]


def step(module: str, old: str, new: str, test: Callable[..., Any], **given: Any) -> list[Mutation]:
    """In the steps, which all dialects share."""
    return [Mutation("sqlite", module, old, new, test, given, is_module=True)]
