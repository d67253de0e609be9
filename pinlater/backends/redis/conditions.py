"""The conditions under which a Redis serves a shard well, as far as it says how it is set up. Nothing is refused."""

from __future__ import annotations

from collections.abc import Mapping

from pinlater.backends.redis.address import RedisAddress
from pinlater.backends.store_warnings import warn_once

OLDEST = 6, 2
_TOO_OLD = "it is version {}; {}.{} or newer is needed, and some calls will fail"
_EVICTS = (
    "maxmemory-policy is {}: when its memory is full this Redis removes jobs and queues without a word; "
    "set maxmemory-policy noeviction"
)
_NO_CHANNELS = (
    "this user may use no channels, so workers notice jobs that other processes enqueue by polling, up to 40 ms later: "
    "ACL SETUSER ... {} (and +publish +subscribe)"
)


def warn_of(about: Mapping[str, str], address: RedisAddress) -> None:
    """`about` is its INFO; what it does not say counts as well set up."""
    place = f"redis {address.shown}"
    version = about.get("redis_version", "")
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if numbers and numbers < OLDEST:
        warn_once(place, _TOO_OLD.format(version, *OLDEST))
    policy = about.get("maxmemory_policy", "") if about.get("maxmemory", "0") != "0" else ""
    if policy.startswith("allkeys"):
        warn_once(place, _EVICTS.format(policy))


def warn_of_channels(address: RedisAddress, root: bytes) -> None:
    warn_once(f"redis {address.shown}", _NO_CHANNELS.format(f"&{root.decode()}*"))
