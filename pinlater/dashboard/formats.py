"""Numbers, times and lengths of time as pages write them. static/live.js writes times in the same way, as they pass."""

from __future__ import annotations

import re
import time
from urllib.parse import quote

from markupsafe import Markup, escape

from pinlater.printable import printable, printable_lines
from pinlater.schedule import utc_moment

_MOMENT = re.compile(r"(?<=paused_until=)([0-9]{13})(?![0-9])", re.ASCII)
_STEPS = ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s"))


def span_text(ms: float) -> str:
    """A length of time, in its two largest units.

    >>> span_text(80), span_text(4_200), span_text(64_000), span_text(7_320_000), span_text(200_000_000)
    ('80 ms', '4 s', '1 min 4 s', '2 h 2 min', '2 d 7 h')
    """
    if ms < 1_000:
        return f"{max(0, ms):.0f} ms"
    seconds = int(ms // 1_000)
    for size, unit, part, part_unit in _STEPS:
        if seconds >= size:
            rest = seconds % size // part
            return f"{seconds // size} {unit} {rest} {part_unit}" if rest else f"{seconds // size} {unit}"
    return f"{seconds} s"


def ago_text(ms: float) -> str:
    """How long ago something was, or in how long it will be.

    >>> ago_text(200), ago_text(90_000), ago_text(-90_000)
    ('now', '1 min 30 s ago', 'in 1 min 30 s')
    """
    if abs(ms) < 1_000:
        return "now"
    return f"{span_text(ms)} ago" if ms > 0 else f"in {span_text(-ms)}"


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


def time_element(ms: int | None, *, is_span: bool = False) -> Markup:
    """A moment, told by how far it is from now; the moment itself is shown by the browser, in its viewer's zone.
    `is_span`: how long something has lasted since then.
    """
    if ms is None:
        return Markup("")
    passed_ms = time.time() * 1000 - ms
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


def detail_text(detail: str) -> Markup:
    """What an entry of the audit tells, with its moments as such.

    >>> detail_text("paused=true, paused_until=<b>")
    Markup('paused=true, paused_until=&lt;b&gt;')
    """
    parts = _MOMENT.split(detail)  # every second one is a moment
    return Markup("").join(
        time_element(int(part)) if index % 2 else escape(printable(part)) for index, part in enumerate(parts)
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
