"""The trace that a job belongs to, as W3C Trace Context has it: it travels in the header `traceparent`.

What a job enqueues continues its trace, with a span id of its own. Outside of jobs `use_trace` says which trace counts;
without one nothing is written. https://www.w3.org/TR/trace-context/
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from random import SystemRandom

TRACEPARENT = "traceparent"
TRACESTATE = "tracestate"

_FORM = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_random = SystemRandom()


@dataclass(frozen=True, slots=True)
class Trace:
    """One span of a trace. Ids are lower-case hexadecimal; `state` is what tracing systems add for themselves."""

    trace_id: str
    span_id: str
    flags: str = "01"
    state: str = ""

    def child(self) -> Trace:
        """A new span of the same trace."""
        return Trace(self.trace_id, _new_id(64), self.flags, self.state)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags}"


_current: ContextVar[Trace | None] = ContextVar("pinlater_trace", default=None)


def new_trace() -> Trace:
    """The first span of a trace that nobody has seen."""
    return Trace(_new_id(128), _new_id(64))


def read_trace(headers: Mapping[str, str]) -> Trace | None:
    """None: there is none, or it is not well-formed, which by the standard counts as none."""
    text = headers.get(TRACEPARENT)
    match = _FORM.fullmatch(text) if text else None
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    return Trace(trace_id, span_id, flags, headers.get(TRACESTATE, ""))


def write_trace(headers: MutableMapping[str, str]) -> None:
    """Continue the current trace in these headers, unless they name one, or there is none."""
    trace = _current.get()
    if trace is None or TRACEPARENT in headers:
        return
    headers[TRACEPARENT] = trace.child().traceparent
    if trace.state:
        headers[TRACESTATE] = trace.state


def current_trace() -> Trace | None:
    return _current.get()


@contextmanager
def use_trace(trace: Trace | None) -> Iterator[None]:
    """Within the block, in this thread or task, `trace` counts."""
    token = _current.set(trace)
    try:
        yield
    finally:
        _current.reset(token)


def set_trace(headers: Mapping[str, str]) -> None:
    """For what runs in a context of its own: from here on the trace of these headers counts."""
    _current.set(read_trace(headers) if TRACEPARENT in headers else None)


def _new_id(bits: int) -> str:
    """Zero would mean none."""
    return f"{_random.randrange(1, 1 << bits):0{bits // 4}x}"
