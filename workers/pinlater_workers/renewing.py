"""A job's next body: what it asks for, with the headers that its old body carries."""

from __future__ import annotations

import msgspec

from pinlater_workers.envelope import Envelope, read_envelope
from pinlater_workers.errors import BodyInvalid


def renewed(old: Envelope, body: bytes, snoozes: int) -> Envelope:
    """ValueError: `body` has no envelope, or none that can be read, and so no worker could run it."""
    try:
        new = read_envelope(body)
    except BodyInvalid as error:
        raise ValueError(f"a new body for job {old.job} that no worker can read: {error}") from error
    if new is None:
        raise ValueError(f"a new body for job {old.job} without an envelope; make it with {old.job}.body(...)")
    return msgspec.structs.replace(new, headers={**old.headers, **new.headers}, snoozes=snoozes)
