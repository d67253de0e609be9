"""A part of a page that could not be loaded, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.errors import (
    FlowNotFound,
    FlowsUnavailable,
    Forbidden,
    MethodUnknown,
    NoHealthyShards,
    Overloaded,
    PinLaterError,
    QueueNotFound,
    ServerUnreachable,
    ShardConnectionFailed,
)
from pinlater.http.problems import detail_of

_HINTS: tuple[tuple[type[PinLaterError], str], ...] = (
    (ServerUnreachable, "No server answers. Check whether one runs, and read its log: pinlater cluster status"),
    (MethodUnknown, "The servers are older than this page. Replace them with ones of this version."),
    (
        FlowsUnavailable,
        "This page tries again by itself. If that does not help, check the database of flows, which --flows names.",
    ),
    (QueueNotFound, "The page Queues lists those that exist."),
    (FlowNotFound, "The page Flows lists those that exist."),
    (NoHealthyShards, "No shard answers. The page Cluster says why."),
    (ShardConnectionFailed, "A shard does not answer. The page Cluster says which one and why."),
    (Forbidden, "You may not see this. Ask for a role that allows it: pinlater access show"),
    (Overloaded, "The servers have much to do. This page tries again by itself."),
)
_FLOWS_ARE_OFF = "Start it with --flows sqlite, or with the address of a database; docs/flows.md says more."


def text_for_people(error: PinLaterError) -> str:
    """What went wrong, without the calls by which programs put it right."""
    text = detail_of(error)
    return f"{text.partition(';')[0]}." if isinstance(error, QueueNotFound) else text


@dataclass(frozen=True, slots=True)
class PartFailed:
    """A part of a page that could not be loaded; the macro `part_failed` shows it."""

    message: str
    hint: str

    @classmethod
    def by(cls, error: PinLaterError) -> PartFailed:
        if isinstance(error, FlowsUnavailable) and not error.retryable:
            return cls("Flows are off: this server was started without them.", _FLOWS_ARE_OFF)
        hint = next((text for kind, text in _HINTS if isinstance(error, kind)), "This page tries again by itself.")
        return cls(text_for_people(error), hint)
