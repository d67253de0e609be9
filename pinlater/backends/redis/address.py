"""What does a store's URL say? `redis://[[USER]:PASSWORD@]HOST[:PORT][/DB][?prefix=NAME]`, or `rediss://` for TLS."""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from redis import RedisError
from redis.asyncio.connection import RedisSSLContext, SSLConnection, parse_url

from pinlater.backends.redis.keys import DEFAULT_PREFIX
from pinlater.errors import RequestInvalid
from pinlater.redaction import MASK

_DATABASE = re.compile(r"[0-9]{1,5}", re.ASCII)
_KNOWN = {"connection_class", "host", "port", "db", "username", "password", "prefix"}
_PREFIX = re.compile(r"[A-Za-z0-9_.-]{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Address:
    """Several shards in one database differ in `prefix`."""

    host: str
    port: int
    db: int
    username: str | None
    password: str | None = field(repr=False)
    prefix: str
    tls: ssl.SSLContext | None

    @property
    def shown(self) -> str:
        """As it may be logged."""
        return f"{self.host}:{self.port}/{self.db} ({self.prefix})"


def parse_address(url: str) -> Address:
    """The parts of a URL. RequestInvalid."""
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
            raise RequestInvalid(f"redis url: the parameter {shown}; allowed: prefix, and for rediss:// ssl_…")
    prefix = parts.pop("prefix", DEFAULT_PREFIX)
    if _PREFIX.fullmatch(prefix) is None:
        raise RequestInvalid.of("prefix of a redis url", prefix, "1 to 64 letters, digits, _ . -")
    secure = parts.get("connection_class") is SSLConnection
    return Address(
        parts.get("host") or "localhost",
        parts.get("port") or 6379,
        parts.get("db") or 0,
        parts.get("username"),
        parts.get("password"),
        prefix,
        _tls(parts) if secure else None,
    )


def _tls(parts: dict[str, Any]) -> ssl.SSLContext:
    """From `ssl_ca_certs`, `ssl_certfile`, `ssl_cert_reqs` and so on; without them certificate and name are checked."""
    given = {name[len("ssl_") :]: value for name, value in parts.items() if name.startswith("ssl_")}
    try:
        return RedisSSLContext(**{"cert_reqs": "required", "check_hostname": True, **given}).get()
    except (TypeError, RedisError, OSError) as error:
        raise RequestInvalid(f"redis url: {error}") from error
