"""A part of a page that could not be loaded, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.errors import (
    FlowsUnavailable,
    Forbidden,
    MethodUnknown,
    NoHealthyShards,
    Overloaded,
    PinLaterError,
    ServerUnreachable,
    ShardConnectionFailed,
)

_HINTS: tuple[tuple[type[PinLaterError], str], ...] = (
    (ServerUnreachable, "No server answers. Look at its log, and whether it runs: pinlater cluster status"),
    (MethodUnknown, "The servers are older than this page. Replace them with ones of this version."),
    (FlowsUnavailable, "The database of flows cannot be reached. Look at --flows and at the database itself."),
    (NoHealthyShards, "No shard answers. The page Cluster says why."),
    (ShardConnectionFailed, "A shard does not answer. The page Cluster says which one and why."),
    (Forbidden, "You may not see this. Ask for a role that allows it: pinlater access show"),
    (Overloaded, "The servers have much to do. This page tries again by itself."),
)


@dataclass(frozen=True, slots=True)
class PartFailed:
    """A part of a page that could not be loaded; the macro `part_failed` shows it."""

    message: str
    hint: str

    @classmethod
    def by(cls, error: PinLaterError) -> PartFailed:
        hint = next((text for kind, text in _HINTS if isinstance(error, kind)), "This page tries again by itself.")
        return cls(error.message, hint)
