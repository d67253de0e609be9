"""Texts from others, made safe to print on a terminal or in a line of a log: they can move no cursor and hide nothing.

What is escaped is all that Unicode calls not printable: control characters (C0, DEL, C1), format characters (those that
turn the direction of writing, or have no width), line and paragraph separators, surrogates, spaces of other widths.
"""

from __future__ import annotations

import json
from typing import Any


def printable(text: str) -> str:
    """The text in one line that cannot move a terminal's cursor.

    >>> printable("a\\nb"), printable("\\u202eexe.pdf")
    ('a\\\\nb', '\\\\u202eexe.pdf')
    """
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def printable_lines(text: str, indent: str = "") -> str:
    """The text with its line breaks and tabs, and no other character that moves a cursor. Each line is indented.

    >>> printable_lines("a\\n\\tb\\x1b[2J")
    'a\\n\\tb\\\\x1b[2J'
    """
    lines = text.replace("\r\n", "\n").split("\n")
    return "\n".join(indent + "\t".join(map(printable, line.split("\t"))) for line in lines)


def json_text(value: Any, *, indent: int | None = None, default: Any = None) -> str:
    """JSON that a terminal can show; parsed, it is equal to what any other encoder makes.

    >>> json_text({"to": "\\x9b2J\\u202e"})
    '{"to": "\\\\u009b2J\\\\u202e"}'
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent, default=default)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\n" else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    return json.dumps(character)[1:-1] if character != "\x7f" else "\\u007f"
