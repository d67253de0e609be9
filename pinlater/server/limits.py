"""Bounds on what one caller, and all callers together, may use of a server process."""

from __future__ import annotations

from dataclasses import dataclass

from pinlater.wire.message import WireLimits

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """The bounds of one server process; every one is counted where it is reached (`ThriftServer.counters`)."""

    max_frame_bytes: int = 16 * MIB
    """The longest frame, and the longest answer. Over it the connection is closed before a byte of the frame is kept;
    an answer over it becomes an error."""

    max_unframed_bytes: int = 1 * MIB
    """The longest message without a frame; over it the connection is closed."""

    max_connections: int = 5_000
    """Connections of this process; one more is closed at once."""

    max_peer_connections: int | None = None
    """Connections of one address to this process; with one more, its own that was idle for longest is closed. None:
    half of `max_connections`."""

    max_frames_in_flight: int = 16
    """Calls of one connection that are carried out at a time; beyond it nothing more is read from that connection."""

    max_buffered_bytes: int = 256 * MIB
    """Bytes that the process keeps for callers: half sent messages and calls in flight. A call over it is refused
    (OVERLOADED); for a half sent message over it, the connection that holds most of one is closed. As much again is
    kept of answers that cannot leave yet, since their callers do not read or wait for an earlier one: beyond it calls
    are refused too, lookups and scans are answered OVERLOADED, and dequeues give their jobs back."""

    max_connection_answers_bytes: int = 32 * MIB
    """The same of answers to one connection: a call that may bring a large one begins when there is room for it."""

    max_peer_answers_bytes: int = 64 * MIB
    """The same of answers to all connections of one address."""

    max_body_bytes: int = 1 * MIB
    """The largest body of a job: what an answer may come to."""

    idle_timeout_s: float = 3_600.0
    """A connection that carries nothing, and has no call under way, for so long is closed."""

    half_sent_timeout_s: float = 30.0
    """A message that is not complete so long after its first byte closes its connection."""

    write_timeout_s: float = 30.0
    """A caller that does not take its answers for so long is cut off."""

    drain_linger_s: float = 0.5
    """How long a stopping server keeps idle connections, to refuse late calls with a clear error."""

    max_container: int = 65_536
    """Elements of one list or map in a message; well over the bounds of the service, which refuses by name."""

    max_steps: int = 100_000
    """Fields and elements of a message that has to be walked (a large or an unusual one)."""

    def peer_connections(self) -> int:
        """Connections of one address."""
        return max(1, self.max_connections // 2) if self.max_peer_connections is None else self.max_peer_connections

    def wire(self) -> WireLimits:
        """The bounds of one message."""
        return WireLimits(
            max_message_bytes=self.max_frame_bytes,
            frame_setting="--max-frame of the server, which goes up to 1GiB",
            max_unframed_bytes=self.max_unframed_bytes,
            max_container=self.max_container,
            max_steps=self.max_steps,
        )
