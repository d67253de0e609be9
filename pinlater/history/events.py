"""The events of a history, by the name that their module had at first."""

from __future__ import annotations

from pinlater.history.call_events import CallBegin, CallEnd, CallError, Event, Note

__all__ = ["CallBegin", "CallEnd", "CallError", "Event", "Note"]
