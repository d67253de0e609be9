"""An open page in parts, of which its script is sent those that it does not have. Pure.

A part is a piece of the text, which need not be well-formed: the script puts all of them together again.
"""

from __future__ import annotations

import re
from hashlib import sha256

import msgspec

from pinlater.dashboard.template_engine import without_clocks

_BEGINS = re.compile(r'(?=<(?:section|figure|aside|table|tr id=|li id=|li><a|div class="figure"))')
MAX_PARTS = 200


def cut_apart(html: str) -> list[str]:
    """Its sections, charts, figures and rows.

    >>> cut_apart('<main><section><table><tr id="a">1</tr><tr id="b">2</tr></table></section></main>')
    ['<main>', '<section>', '<table>', '<tr id="a">1</tr>', '<tr id="b">2</tr></table></section></main>']
    """
    parts = _BEGINS.split(html)
    while len(parts) > MAX_PARTS:
        parts = ["".join(parts[at : at + 2]) for at in range(0, len(parts), 2)]
    return parts


def news_for(html: str, known: str) -> bytes:
    """As JSON, a list of the page's parts: the hash of each, and its text where that is not among the `known` hashes,
    which have commas between.
    """
    has = set(known.split(","))
    news = []
    for part in cut_apart(html):
        mark = sha256(without_clocks(part).encode()).hexdigest()[:10]
        news.append([mark] if mark in has else [mark, part])
    return msgspec.json.encode(news)
