"""A caller's connection: its address, the claims bound to it, and jobs that may not have reached the caller."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from typing import Any, NamedTuple

_NAME_KINDS = ("DNS", "URI", "email", "IP Address")


@dataclass(slots=True, eq=False)
class ConnectionRef:
    """A connection, as those know it who bind claims to it.

    `claims` are the claims bound to it, by job descriptor; `is_broken`: it broke; `peer` is the caller's address as
    sockets have it; `certificate_names` are those in the certificate that the caller has proved to have, without their
    kind, () for none; `is_closed`: it is there no more, for whatever reason; `holder`: whose share of what all callers
    have in common its last call took, "" where that is not known; `worker`: the identity and the id in the last report
    of a worker that came by it.
    """

    claims: dict[str, BoundClaim] = field(default_factory=dict, repr=False)
    is_broken: bool = False
    peer: object = None
    certificate_names: tuple[str, ...] = ()
    is_closed: bool = False
    holder: str = ""
    worker: tuple[str, str] | None = None


@dataclass(slots=True, eq=False)
class BoundClaim:
    """A claim that is bound to a connection.

    `last_seen_ms` is the now that this process wrote last for it, with the claim or with a checkpoint; `expires_at_ms`
    is when the claim expires if it was not renewed since, here or elsewhere.
    """

    descriptor: str
    claim_descriptor: str
    last_seen_ms: int
    expires_at_ms: int
    connection: ConnectionRef
    is_undelivered: bool = False
    """The connection broke before anybody received the job."""


class Unreceived(NamedTuple):
    """A job that was handed out, and that nobody received as far as is known; its claim, and when that expires."""

    descriptor: str
    claim_descriptor: str
    expires_at_ms: int


def host_of(peer: object) -> str:
    """The address that counts, of one as sockets have it: of IPv6 the network, since a caller has as many addresses
    there as it likes.

    >>> host_of(("10.0.0.1", 5)), host_of(("2001:db8::1:2:3:4", 5, 0, 0)), host_of(("::ffff:10.0.0.1", 5, 0, 0))
    ('10.0.0.1', '2001:db8::/64', '10.0.0.1')
    >>> host_of(("::1", 5, 0, 0)), host_of(None)
    ('::1', 'unknown')
    """
    if not isinstance(peer, tuple) or not peer:
        return "unknown"
    host = str(peer[0])
    if ":" not in host:
        return host
    address = ip_address(host.partition("%")[0])
    if not isinstance(address, IPv6Address) or address.is_loopback:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def names_in(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """The subject alternative names of a certificate that was checked, as `ssl` tells of it; () for none. The subject
    itself is no name: RFC 6125, section 6.4.4.

    >>> names_in({"subjectAltName": (("DNS", "web.example"), ("URI", "spiffe://example/web"), ("DirName", ()))})
    ('web.example', 'spiffe://example/web')
    """
    names = () if certificate is None else certificate.get("subjectAltName", ())
    return tuple(str(name) for kind, name in names if kind in _NAME_KINDS)
