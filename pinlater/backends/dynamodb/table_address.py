"""The address of a table: `dynamodb://REGION/TABLE?endpoint=http://127.0.0.1:8000&buckets=4`."""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import parse_qsl, urlsplit

from pinlater.errors import StoreRefused

BUCKETS, MOST_BUCKETS = 4, 64
"""Partitions for each priority of a queue, of a table whose address does not say how many, and at most."""

_TABLE = re.compile(r"[A-Za-z0-9_.-]{3,255}", re.ASCII)
_REGION = re.compile(r"[a-z0-9-]{1,40}", re.ASCII)
_FORM = "dynamodb://REGION/TABLE?endpoint=…&buckets=…"


class TableAddress(NamedTuple):
    """`buckets` counts where the table is new, and stays what it was then."""

    region: str
    table: str
    endpoint: str
    buckets: int


def parse_address(url: str) -> TableAddress:
    """
    >>> parse_address("dynamodb://eu-west-1/jobs")
    TableAddress(region='eu-west-1', table='jobs', endpoint='https://dynamodb.eu-west-1.amazonaws.com', buckets=4)
    """
    parts = urlsplit(url)
    table, options = parts.path.strip("/"), dict(parse_qsl(parts.query, keep_blank_values=True))
    endpoint = options.pop("endpoint", f"https://dynamodb.{parts.netloc}.amazonaws.com")
    buckets = options.pop("buckets", str(BUCKETS))
    if not _REGION.fullmatch(parts.netloc) or not _TABLE.fullmatch(table):
        raise StoreRefused(f"a region and the name of a table are needed: {_FORM}")
    if options:
        raise StoreRefused(f"not known in an address of DynamoDB: {', '.join(sorted(options))}; allowed: {_FORM}")
    if not buckets.isdecimal() or not 1 <= int(buckets) <= MOST_BUCKETS:
        raise StoreRefused(f"buckets is a number from 1 to {MOST_BUCKETS}: {_FORM}")
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise StoreRefused(f"the endpoint begins with http:// or https://: {_FORM}")
    return TableAddress(parts.netloc, table, endpoint.rstrip("/"), int(buckets))
