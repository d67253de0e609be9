"""The addresses of Redis: of one server, of a primary that sentinels watch, and of a shard in a cluster."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import SplitResult, parse_qs, urlencode, urlsplit, urlunsplit

from redis import RedisError
from redis.asyncio.connection import RedisSSLContext, SSLConnection, parse_url

from pinlater.backends.redis.cluster_slots import MOST_SHARDS, prefix_of
from pinlater.backends.redis.failover import NO_WAIT, Endpoint, ReplicaWait, Sentinels, login
from pinlater.errors import RequestInvalid
from pinlater.host_lists import split_url
from pinlater.redaction import MASK

DEFAULT_PREFIX = "pinlater"
_DATABASE = re.compile(r"[0-9]{1,5}", re.ASCII)
_KNOWN = {"connection_class", "host", "port", "db", "username", "password", "prefix"}
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Several shards in one database differ in `prefix`."""

    host: str
    port: int
    db: int
    username: str | None
    password: str | None = field(repr=False)
    prefix: str
    tls: ssl.SSLContext | None
    wait: ReplicaWait = NO_WAIT
    sentinels: Sentinels | None = None
    """They name the host and the port."""
    nodes: tuple[Endpoint, ...] = ()
    """Some nodes of a cluster, which name the host and the port."""

    @property
    def shown(self) -> str:
        """The address as it may be logged: without user and password."""
        if self.nodes:
            return f"{','.join(f'{host}:{port}' for host, port in self.nodes)} ({self.prefix})"
        place = f"{self.host}:{self.port}" if self.sentinels is None else self.sentinels.shown
        return f"{place}/{self.db} ({self.prefix})"

    @property
    def login(self) -> tuple[str, ...] | None:
        """The arguments of AUTH."""
        return login(self.username, self.password)


def parse_address(url: str) -> RedisAddress:
    """The parts of a URL. RequestInvalid.

    >>> parse_address("redis+sentinel://s1,s2:26380/jobs/2?wait=1").shown
    's1:26379,s2:26380/jobs/2 (pinlater)'
    """
    try:
        split, own = split_url(url), dict[str, str]()
    except ValueError as error:
        raise RequestInvalid(f"redis url: {error}") from error
    query = {name: values[-1] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
    for name in [each for each in query if each in _OURS]:
        own[name] = query.pop(name)
    wait = ReplicaWait(_number(own, "wait", 0, 9), _number(own, "wait_ms", 1_000, 4_000))
    if split.scheme.endswith(_CLUSTER):
        return _of_cluster(split, query, own, wait)
    if not split.scheme.endswith(_SENTINEL):
        return replace(_parsed(urlunsplit(split._replace(query=urlencode(query)))), wait=wait)
    user, at, hosts = split.netloc.rpartition("@")
    name, _, database = split.path.strip("/").partition("/")
    if not name or not hosts.strip(","):
        raise RequestInvalid("redis url: write redis+sentinel://SENTINEL,SENTINEL/NAME/DATABASE")
    endpoints = tuple(_endpoint(host, _SENTINEL_PORT) for host in hosts.split(","))
    plain = (split.scheme.removesuffix(_SENTINEL), f"{user}{at}sentinels", f"/{database}", urlencode(query), "")
    sentinels = Sentinels(endpoints, name, login(own.get("sentinel_username"), own.get("sentinel_password")))
    return replace(_parsed(urlunsplit(plain)), wait=wait, sentinels=sentinels)


_SENTINEL, _CLUSTER = "+sentinel", "+cluster"
_SENTINEL_PORT, _PORT = 26379, 6379
_OURS = ("wait", "wait_ms", "sentinel_username", "sentinel_password", "shard")


def _of_cluster(split: SplitResult, query: dict[str, str], own: dict[str, str], wait: ReplicaWait) -> RedisAddress:
    user, at, hosts = split.netloc.rpartition("@")
    if split.path.strip("/") or not hosts.strip(","):
        raise RequestInvalid("redis url: write redis+cluster://NODE,NODE/?shards=16; a cluster has no databases")
    nodes = tuple(_endpoint(host, _PORT) for host in hosts.split(","))
    shard = _number(own, "shard", 1, MOST_SHARDS)
    if shard == 0:
        raise RequestInvalid.of("shard of a redis url", 0, f"1 to {MOST_SHARDS}")
    plain = _parsed(urlunsplit((split.scheme.removesuffix(_CLUSTER), f"{user}{at}nodes", "/0", urlencode(query), "")))
    return replace(plain, prefix=prefix_of(plain.prefix, shard), wait=wait, nodes=nodes)


def _number(given: dict[str, str], name: str, default: int, most: int) -> int:
    text = given.get(name, str(default))
    if not text.isdecimal() or int(text) > most:
        raise RequestInvalid.of(f"{name} of a redis url", text, f"0 to {most}")
    return int(text)


def _endpoint(host: str, port: int) -> Endpoint:
    try:
        parts = urlsplit(f"//{host}")
        endpoint = parts.hostname or "", parts.port or port
    except ValueError as error:
        raise RequestInvalid(f"redis url: {host!r}: {error}") from error
    if not endpoint[0]:
        raise RequestInvalid("redis url: a host is missing between two commas")
    return endpoint


def _parsed(url: str) -> RedisAddress:
    try:
        parts: dict[str, Any] = dict(parse_url(url))
        path = urlsplit(url).path.strip("/")
    except ValueError as error:
        raise RequestInvalid(f"redis url: {error}") from error
    if path and not _DATABASE.fullmatch(path):  # the parser would take 0
        raise RequestInvalid("redis url: the database is no number; in a password / is written %2F")
    for name in parts:
        if name not in _KNOWN and not name.startswith("ssl_"):
            ends_password = any(each.endswith("password") for each in parts)  # the rest of one with & in it
            shown = MASK if ends_password else repr(name)
            raise RequestInvalid(
                f"redis url: the parameter {shown}; allowed: prefix, wait, wait_ms, and for rediss:// ssl_…"
            )
    prefix = parts.pop("prefix", DEFAULT_PREFIX)
    if _PREFIX.fullmatch(prefix) is None:
        raise RequestInvalid.of("prefix of a redis url", prefix, "1 to 64 letters, digits, _ . -")
    secure = parts.get("connection_class") is SSLConnection
    return RedisAddress(
        parts.get("host") or "localhost",
        parts.get("port") or 6379,
        parts.get("db") or 0,
        parts.get("username"),
        parts.get("password"),
        prefix,
        _tls(parts) if secure else None,
    )


def _tls(parts: dict[str, Any]) -> ssl.SSLContext:
    """The TLS of a URL's `ssl_ca_certs`, `ssl_certfile`, `ssl_cert_reqs` and so on; certificate and name are checked
    unless these say otherwise. RequestInvalid.
    """
    given = {name[len("ssl_") :]: value for name, value in parts.items() if name.startswith("ssl_")}
    try:
        return RedisSSLContext(**{"cert_reqs": "required", "check_hostname": True, **given}).get()
    except (TypeError, RedisError, OSError) as error:
        raise RequestInvalid(f"redis url: {error}") from error
