"""A caller's connection, and the claims that are bound to it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Holder:
    """A connection, as those know it who bind claims to it. `ties` are by job descriptor; `is_gone`: it broke; `peer`
    is the caller's address as sockets have it.
    """

    ties: dict[str, Tie] = field(default_factory=dict, repr=False)
    is_gone: bool = False
    peer: object = None


@dataclass(slots=True, eq=False)
class Tie:
    """A claim that is bound to a connection.

    `heard_at_ms` is the now that this process wrote last for it, with the claim or with a checkpoint; `expires_at_ms`
    is when the claim expires if nothing was heard of it since, here or elsewhere.
    """

    descriptor: str
    claim_descriptor: str
    heard_at_ms: int
    expires_at_ms: int
    holder: Holder
