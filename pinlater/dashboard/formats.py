"""Numbers and times as pages write them."""

from __future__ import annotations

import re
from urllib.parse import quote

from markupsafe import Markup, escape

from pinlater.durations import ago_text, span_text
from pinlater.printable import printable, printable_lines
from pinlater.schedule import utc_moment, utc_text

_MOMENT = re.compile(r"(?<=paused_until=)([0-9]{13})(?![0-9])", re.ASCII)


def number_text(value: float) -> str:
    """
    >>> number_text(1234567), number_text(0.26), number_text(12.6), number_text(0.0)
    ('1,234,567', '0.3', '13', '0')
    """
    if isinstance(value, int) or value >= 10 or value < 0.05:
        return f"{value:,.0f}"
    return f"{value:.1f}"


def bytes_text(value: int) -> str:
    """
    >>> bytes_text(200), bytes_text(2048), bytes_text(5 * 2**20)
    ('200 B', '2.0 KiB', '5.0 MiB')
    """
    size = float(value)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{value:,} B" if unit == "B" else f"{size:,.1f} {unit}"


def time_element(ms: int | None, now_ms: int, *, is_span: bool = False) -> Markup:
    """A moment, told by how far it is from now; a script shows it as the viewer has chosen. `is_span`: how long
    something has lasted since then.
    """
    if ms is None:
        return Markup("")
    passed_ms = now_ms - ms
    text = span_text(max(0.0, passed_ms)) if is_span else ago_text(passed_ms)
    moment = utc_moment(ms)
    if moment is None:  # no script can say it otherwise
        return Markup('<span title="{} ms since 1970">{}</span>').format(ms, text)
    kind = Markup(" data-span") if is_span else ""
    return Markup('<time datetime="{}" data-ms="{}"{} title="{}">{}</time>').format(
        moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        ms,
        kind,
        f"{moment:%Y-%m-%d %H:%M:%S} UTC",
        text,
    )


def clock_text(ms: int) -> str:
    """
    >>> clock_text(1790000000123)
    '14:13:20.123'
    """
    return utc_text(ms, f"%H:%M:%S.{ms % 1000:03d}")


def detail_text(detail: str, now_ms: int) -> Markup:
    """What an entry of the audit tells, with its moments as such.

    >>> detail_text("paused=true, paused_until=<b>", 0)
    Markup('paused=true, paused_until=&lt;b&gt;')
    """
    parts = _MOMENT.split(detail)  # every second one is a moment
    return Markup("").join(
        time_element(int(part), now_ms) if index % 2 else escape(printable(part)) for index, part in enumerate(parts)
    )


def segment(text: str) -> str:
    """A part of a path.

    >>> segment("mail:s1/../x")
    'mail%3As1%2F..%2Fx'
    """
    return quote(text.encode("utf-8", "replace"), safe="")


def lines_text(text: str) -> Markup:
    """A text with its line breaks, of whoever wrote it."""
    return escape(printable_lines(text))


def shown(value: object) -> object:
    """Every value that a template writes passes this: no character of it hides, or turns around what is beside it."""
    return printable(value) if type(value) is str else value
