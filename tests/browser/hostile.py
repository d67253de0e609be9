"""Texts that a caller can put into a field and that a page must show as what they are."""

from __future__ import annotations

TURNS = "\u202e", "\u2066"
"""Turn the direction of what follows."""

ODD = (
    "naïve “quotes” 'single' & <b>bold</b> {{7*7}} ${7*7} 日本語 🙈👩‍👩‍👧 "
    f"{TURNS[0]}gpj.exe{TURNS[1]} \x1b[2J \x00 \u2028 end"
)


def planted(field: str, limit: int = 10_000) -> str:
    """Markup that says `field` to the test when a browser takes it for markup; cut where the field is short."""
    short = f"\"'><img/src=x/onerror=planted('{field}')>"
    whole = (
        f"{short}<script>planted('{field}')</script><svg/onload=planted('{field}')></svg>javascript:planted('{field}')"
    )
    return whole if len(whole) <= limit else short


def shown(field: str) -> str:
    """What of `planted(field)` is to be read on a page."""
    return f"<img/src=x/onerror=planted('{field}')>"
