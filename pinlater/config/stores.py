"""The stores of a configuration: one per shard, as `URL` or `ID=URL`, or a `[[store]]` table."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit, urlunsplit

from pinlater.data_folder.identity import OVERFLOW_ID
from pinlater.host_lists import split_url
from pinlater.near_names import meant_name
from pinlater.redaction import MASK, redact_url

SENTINEL_SCHEMES = ("redis+sentinel", "rediss+sentinel")
CLUSTER_SCHEMES = ("redis+cluster", "rediss+cluster")
SCHEMES = (
    "sqlite",
    "redis",
    "rediss",
    *SENTINEL_SCHEMES,
    *CLUSTER_SCHEMES,
    "mysql+pymysql",
    "mysql+mysqldb",
    "postgresql+psycopg",
    "dynamodb",
)
_MEANT = {
    "postgres": "postgresql+psycopg",
    "postgresql": "postgresql+psycopg",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
    "file": "sqlite",
}
"""Of what other programs write."""
SHARD_ID = rf"(?!{OVERFLOW_ID}(?![A-Za-z0-9]))[A-Za-z0-9]{{1,16}}"
ALLOWED_ID = "1 to 16 letters and digits, and not like an overflow shard's (o and ten digits or capital letters)"
ALLOWED_URL = (
    "sqlite:///path, redis://…, rediss://…, redis+sentinel://…, rediss+sentinel://…, redis+cluster://…, "
    "rediss+cluster://…, mysql+pymysql://…, mysql+mysqldb://…, postgresql+psycopg://… or dynamodb://REGION/TABLE"
)
CLUSTER_SHARDS, MOST_CLUSTER_SHARDS = 16, 64
"""Of an entry that does not say how many, and at most: backends/redis/cluster_slots.py has places for so many."""

ALLOWED_STORE = f"URL or ID=URL, the URL one of {ALLOWED_URL}"
_ENCODED = "what is special in user and password, encoded: %2F for /, %23 for #, %3F for ?, %40 for @"
_STORE = re.compile(rf"(?:({SHARD_ID})=)?([a-z+]+://.*)", re.ASCII | re.DOTALL)


_KEY_PARAMETERS = ("ssl_keyfile", "ssl_key", "sslkey")
"""Of redis-py's URLs, of the MySQL drivers', and of libpq's."""


@dataclass(frozen=True, slots=True)
class StoreConfig:
    """One shard. An `id` of "" lets the store's own record decide; `dequeue_only` takes no new jobs."""

    id: str
    url: str
    dequeue_only: bool = False

    @property
    def embedded(self) -> bool:
        return self.url.startswith("sqlite:")

    def key_files(self) -> list[str]:
        """The files that its URL names with private keys: of the certificate that the store is shown."""
        query = parse_qs(split_url(self.url).query)
        return [path for name in _KEY_PARAMETERS for path in query.get(name, ())]

    def masked(self) -> str:
        """The URL as it may be shown, without its password."""
        return redact_url(self.url)


class StoreMistake(ValueError):
    """What is wrong with a store: the part of it, its value as it may be shown, and what is allowed."""

    def __init__(self, part: str, value: object, allowed: str) -> None:
        super().__init__(part)
        self.part, self.value, self.allowed = part, value, allowed


def parse_store(text: str) -> StoreConfig:
    """`URL` or `ID=URL`. StoreMistake.

    >>> parse_store("2=redis://127.0.0.1:6379/0")
    StoreConfig(id='2', url='redis://127.0.0.1:6379/0', dequeue_only=False)
    """
    match = _STORE.fullmatch(text)
    if match is None:
        raise StoreMistake("", redact_url(text), ALLOWED_STORE)
    return StoreConfig(match[1] or "", checked_url(match[2]))


def checked_url(url: str) -> str:
    """The URL, if it can be one of a store. StoreMistake."""
    try:
        parts = split_url(url)
        for host in parts.netloc.rpartition("@")[2].split(","):
            _ = urlsplit(f"//{host}").port
    except ValueError as error:
        raise StoreMistake("url", redact_url(url), f"{ALLOWED_URL}; {_ENCODED}") from error
    if parts.scheme not in SCHEMES:
        scheme = _MEANT.get(parts.scheme, parts.scheme)
        raise StoreMistake("url", redact_url(url), ALLOWED_URL + meant_name(scheme, SCHEMES))
    if parts.scheme != "sqlite" and MASK in url and redact_url(url) == url:
        raise StoreMistake("url", url, f"the password itself, not {MASK} (print with --show-secrets to keep it)")
    if parts.scheme == "sqlite":
        if parts.netloc or parts.path in ("", "/") or parts.path.startswith("/:memory:"):
            raise StoreMistake("url", redact_url(url), "a file: sqlite:///relative/path or sqlite:////absolute/path")
    elif parts.scheme == "dynamodb" and "@" in parts.netloc:
        raise StoreMistake("url", redact_url(url), "dynamodb://REGION/TABLE: AWS's own ways find the credentials")
    elif "@" in (parts.path if parts.scheme.startswith("redis") else parts.netloc.rpartition("@")[0]):
        raise StoreMistake("url", redact_url(url), _ENCODED)
    elif not parts.hostname:
        raise StoreMistake("url", redact_url(url), f"{parts.scheme}://HOST:PORT/…")
    if parts.scheme in SENTINEL_SCHEMES and parts.path in ("", "/"):
        raise StoreMistake("url", redact_url(url), f"{parts.scheme}://SENTINEL,SENTINEL/NAME/DATABASE")
    if parts.scheme.startswith(("mysql", "postgresql")) and parts.path in ("", "/"):
        raise StoreMistake("url", redact_url(url), f"{parts.scheme}://USER@HOST:PORT/DATABASE")
    if parts.scheme == "dynamodb" and parts.path in ("", "/"):
        raise StoreMistake("url", redact_url(url), "dynamodb://REGION/TABLE")
    return url


def expanded(store: StoreConfig) -> list[StoreConfig]:
    """The stores of one entry: a cluster with `shards` is so many, whose ids begin with the one that is given, or c.

    >>> [each.id for each in expanded(StoreConfig("jobs", "redis+cluster://n1,n2/?shards=2"))]
    ['jobs1', 'jobs2']
    >>> expanded(StoreConfig("", "redis+cluster://n1/?shards=2&wait=1"))[1].url
    'redis+cluster://n1/?wait=1&shard=2'
    """
    parts = split_url(store.url)
    if parts.scheme not in CLUSTER_SCHEMES:
        return [store]
    query = parse_qsl(parts.query, keep_blank_values=True)
    given = dict(query)
    if "shard" in given:
        return [store]
    shards = given.get("shards", str(CLUSTER_SHARDS))
    if not shards.isdecimal() or not 1 <= int(shards) <= MOST_CLUSTER_SHARDS:
        raise StoreMistake("url", redact_url(store.url), f"shards=1 to shards={MOST_CLUSTER_SHARDS}")
    ids = [f"{store.id or 'c'}{number}" for number in range(1, int(shards) + 1)]
    if not all(re.fullmatch(SHARD_ID, each, re.ASCII) for each in ids):
        raise StoreMistake("id", store.id, f"{ALLOWED_ID}; with the numbers of {shards} shards behind it")
    rest = urlencode([(name, value) for name, value in query if name != "shards"])
    urls = [parts._replace(query=f"{rest}{'&' if rest else ''}shard={number + 1}") for number in range(len(ids))]
    return [replace(store, id=each, url=urlunsplit(url)) for each, url in zip(ids, urls, strict=True)]


def default_store(data: str) -> StoreConfig:
    """What holds the jobs where nothing else is said: one file in the data folder."""
    return StoreConfig("1", f"sqlite:///{data.rstrip('/')}/pinlater.db")
