"""URLs that may name several hosts, as those of sentinels and of a cluster's nodes do."""

from __future__ import annotations

import re
from urllib.parse import SplitResult, urlsplit

_END = re.compile(r"[/?#]")


def split_url(url: str) -> SplitResult:
    """As `urlsplit`, also where an IPv6 address is not the first of the hosts: Pythons since CVE-2025-0938 take
    brackets behind anything else for a mistake. Where there are several hosts, none of them is checked. ValueError.

    >>> split_url("redis+sentinel://app:pw@s1,[::1]:26380/jobs").netloc
    'app:pw@s1,[::1]:26380'
    """
    scheme, separator, rest = url.partition("://")
    found = _END.search(rest)
    end = found.start() if found else len(rest)
    user, at, hosts = rest[:end].rpartition("@")
    if "," not in hosts:
        return urlsplit(url)
    parts = urlsplit(f"{scheme}{separator}{user}{at}hosts{rest[end:]}")
    return parts._replace(netloc=f"{user}{at}{hosts}")
