"""The removal of secrets from every text that leaves this process: errors, logs, pages, reports, output of commands.

Two ways at once. By its form: whatever a URL has where a password may stand, also where the URL is mistyped. And by its
value: what the configuration is known to hold as a secret is replaced wherever it stands, in whatever spelling a
driver, a traceback or an encoder has put it.
"""

from __future__ import annotations

import html
import json
import re
import threading
from collections.abc import Iterable, Iterator
from urllib.parse import quote, quote_plus, unquote, unquote_plus

MASK = "***"
SHORTEST_CHARS = 6
"""Shorter secrets are not replaced by their value: they would be found in texts that have nothing to do with them."""
ANYWHERE_CHARS = 8
"""Shorter ones are replaced only where they stand as words of their own."""

SHOWN_PARAMETERS = frozenset(
    (
        *("prefix", "db", "database", "host", "port", "user", "username", "unix_socket", "charset", "collation"),
        *("connect_timeout", "read_timeout", "write_timeout", "socket_timeout", "max_allowed_packet", "compress"),
        *("ssl", "ssl_ca", "ssl_cert", "ssl_key", "ssl_capath", "ssl_cipher", "ssl_disabled", "ssl_mode"),
        *("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile", "ssl_cert_reqs", "ssl_check_hostname"),
        *("endpoint", "region", "buckets", "wait", "wait_ms", "sentinel_username", "shard", "shards"),
        *("sslmode", "sslrootcert", "sslcert", "sslkey", "application_name", "target_session_attrs"),
        *("ssl_ciphers", "ssl_min_version", "ssl_verify_cert", "ssl_verify_identity"),
    )
)
"""What a URL's query may say aloud; all else may be a secret, a mistyped `passwrd` too."""
_SECRET_PARAMETERS = frozenset(("password", "passwd", "ssl_password", "ssl_key_password", "sslpassword"))

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.=-]{0,40}://[^\s\"'<>`]*")
_LINK = "/dashboard/open/"
_LINK_SECRET = re.compile(rf"(?<={_LINK})[A-Za-z0-9_-]+")
"""Of a link that opens the dashboard once. There are many of them, so they are known by their form."""

_PUBLIC = frozenset(
    (
        *("pinlater", "mysql", "postgres", "postgresql", "redis", "rediss", "sqlite", "localhost"),
        *("mysql+pymysql", "mysql+mysqldb", "postgresql+psycopg", "dynamodb"),
    )
)
_SEVERAL_HOSTS = ("+sentinel", "+cluster")
_LONE_USER = ("mysql+pymysql", "mysql+mysqldb", "postgresql+psycopg")
"""With these, USER@HOST is a user; with others what stands there alone may be a password."""


class Secrets:
    """What is known to be secret. Only ever more: what a configuration held before may still be in use."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spellings: set[str] = set()
        self._known: re.Pattern[str] | None = None

    def keep(self, values: Iterable[str]) -> None:
        """From now on these are replaced, in whatever spelling; those that are too short for that are not."""
        found = {each for value in values if _is_distinct(value) for each in spellings(value)}
        with self._lock:
            if not found <= self._spellings:
                self._spellings |= found
                longest_first = sorted(self._spellings, key=len, reverse=True)
                self._known = re.compile("|".join(map(_pattern, longest_first)))

    def redact(self, text: str) -> str:
        """The text without secrets."""
        if self._known is not None:
            text = self._known.sub(MASK, text)
        if _LINK in text:
            text = _LINK_SECRET.sub(MASK, text)
        return _URL.sub(_redact_match, text) if "://" in text else text


SECRETS = Secrets()
"""Those of this process."""


def redact(text: str) -> str:
    """The text as it may leave this process.

    >>> redact("no answer from redis://:geheim@127.0.0.1/0")
    'no answer from redis://:***@127.0.0.1/0'
    >>> redact("GET /dashboard/open/c2VjcmV0")
    'GET /dashboard/open/***'
    """
    return SECRETS.redact(text)


def redact_url(url: str) -> str:
    """The URL with *** in place of whatever may be a secret, also where it is not much of a URL.

    >>> redact_url("mysql+pymysql://app:a/b@db/jobs"), redact_url("redis://127.0.0.1/0?password=geheim")
    ('mysql+pymysql://app:***@db/jobs', 'redis://127.0.0.1/0?password=***')
    >>> redact_url("redis:/app:geheim@db")
    '***@db'
    """
    scheme, separator, rest = url.partition("://")
    if scheme.endswith("sqlite") and rest.startswith("/"):
        return url
    head, question, params = (rest if separator else url).partition("?")
    is_odd = "@" in params and not ("@" in head or _is_query(params))  # the rest of a password that is not encoded
    query = f"{question}{MASK if is_odd else _redact_query(params)}" if question else ""
    if not separator:
        return (f"{MASK}@{_host(head)}" if "@" in head else head) + query
    user, at, host = head.rpartition("@")
    if not at:
        hosts = [_redact_port(each, is_odd=is_odd) for each in _hosts(scheme, head)]
        return f"{scheme}://{','.join(hosts)}{query}"
    name, colon, _ = user.partition(":")
    if colon:
        name = f"{name}:{MASK}"
    elif not scheme.endswith(_LONE_USER):
        name = MASK
    return f"{scheme}://{name}@{host}{query}"


def secrets_of_url(url: str) -> Iterator[str]:
    """Whatever may be a secret in a URL, as each of those who read it may understand it, and decoded. Never ""."""
    scheme, separator, rest = url.partition("://")
    if scheme.endswith("sqlite") and rest.startswith("/"):
        return
    rest = rest if separator else url
    found: list[str] = []
    head, _, query = rest.partition("?")
    users = [head.rpartition("@")[0], head.partition("@")[0]] if "@" in head else []
    if "@" in query and not _is_query(query):
        users.append(rest.rpartition("@")[0])
    for user in users:
        name, colon, password = user.partition(":")
        if colon:
            found.append(password)
        elif not scheme.endswith(_LONE_USER):
            found.append(name)
        if not separator:
            found += re.split(r"[:/]", user)
        found += _pieces(password)
    if "@" not in rest:
        ports = [
            re.split(r"[/#]", each.partition(":")[2])[0] for each in _hosts(scheme, head) if not each.startswith("[")
        ]
        found += [port for port in ports if not port.isdecimal()]
    for part in query.split("&"):
        name, _, value = part.partition("=")
        if name.lower() not in SHOWN_PARAMETERS:
            found += [value, value.partition("#")[0]]
    public = {*re.split(r"[/:?#@=&]", redact_url(url)), *_PUBLIC}
    for each in dict.fromkeys(found):
        for value in dict.fromkeys((each, unquote(each), unquote_plus(each))):
            if value and value not in public:
                yield value


def spellings(value: str) -> set[str]:
    """A secret as it may stand in a URL, in JSON, in HTML, and in the repr of a text or of bytes."""
    return {
        value,
        quote(value),
        quote(value, safe=""),
        quote_plus(value),
        html.escape(value),
        json.dumps(value)[1:-1],
        json.dumps(value, ensure_ascii=False)[1:-1],
        repr(value)[1:-1],
        repr(value.encode("utf-8", "surrogatepass"))[2:-1],
    }


def _pieces(password: str) -> list[str]:
    """Of one that is not encoded: as those take it for whom one of these characters is the end of it."""
    return [piece for piece in re.split(r"[/?#@:\[\]]", password) if len(piece) >= SHORTEST_CHARS]


def _is_query(text: str) -> bool:
    """Whether it begins as one, and is not the rest of a password with a question mark in it."""
    name, equals, _ = text.partition("=")
    return bool(equals) and name.lower() in SHOWN_PARAMETERS | _SECRET_PARAMETERS


def _is_distinct(value: str) -> bool:
    return len(value) >= SHORTEST_CHARS and value not in _PUBLIC and value != MASK


def _pattern(value: str) -> str:
    if len(value) >= ANYWHERE_CHARS:
        return re.escape(value)
    return rf"(?<![A-Za-z0-9]){re.escape(value)}(?![A-Za-z0-9])"


def _redact_match(found: re.Match[str]) -> str:
    url = found[0].removesuffix(":")  # the text goes on behind it
    return redact_url(url) + found[0][len(url) :]


def _redact_query(query: str) -> str:
    """What follows a secret without a name that is shown may still be a part of it."""
    parts = []
    is_after_secret = False
    for part in query.split("&"):
        name, equals, value = part.partition("=")
        if equals and name.lower() in SHOWN_PARAMETERS and "@" not in value:
            parts.append(part)
        else:
            parts.append(f"{name}={MASK}" if equals and not is_after_secret else MASK)
            is_after_secret = True
    return "&".join(parts)


def _hosts(scheme: str, head: str) -> list[str]:
    """The single hosts of an address, the last with the path."""
    return head.split(",") if scheme.endswith(_SEVERAL_HOSTS) else [head]


def _redact_port(head: str, *, is_odd: bool) -> str:
    """HOST:PORT/… as it is; `is_odd`: it may be the beginning of USER:PASSWORD@…, as where the port is no number."""
    if head.startswith("["):
        return head
    authority = re.split(r"[/#]", head)[0]
    name, colon, port = authority.partition(":")
    is_port = not colon or not port or port.isdecimal()
    return head if is_port and not (colon and is_odd) else f"{name}:{MASK}"


def _host(head: str) -> str:
    return head.rpartition("@")[2]
