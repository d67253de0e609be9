"""What callers of a simulated cluster do, in parts: each has queues, producers, workers and operators of its own."""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.parts.part import Part
from tests.simulation.parts.plain import Plain

PARTS: Mapping[str, type[Part]] = {part.NAME: part for part in (Plain,)}
"""By the name that a plan lists."""
