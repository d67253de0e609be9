"""How much a message may hold."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Bounds on one message. All are well above those of the service, which refuses by name what is merely too much."""

    max_message_bytes: int = 16 * 1024 * 1024
    """A frame's declared length, and the longest string."""

    max_unframed_bytes: int = 1024 * 1024
    """A message without a frame, whose length nobody declares."""

    max_container: int = 65_536
    """Elements of one list, set or map."""

    max_steps: int = 100_000
    """Fields and elements of one message, counted where it is walked: some 50 ms of work at the most. 10,000 jobs
    take 60,000, also where fewer are allowed (`CompactWalk.share`)."""

    walk_over_bytes: int = 128 * 1024
    """From this size on a message is walked before it is decoded; below, the decoder cannot be made to take long."""


DEFAULT_LIMITS = WireLimits()
