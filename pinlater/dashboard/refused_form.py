"""A form that was refused: its page shows it open again, with what was typed. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import unescape

from markupsafe import Markup, escape

_CONTROL = re.compile(r"<(input|select|option)\b([^>]*)>|<(textarea)\b([^>]*)>[^<]*")
_ATTRIBUTE = re.compile(r'([a-z-]+)(?:="([^"]*)")?')
_CHECKED = re.compile(r" (?:checked|selected)(?=[ >]|$)")
_VALUE = re.compile(r' value="[^"]*"')


def with_typed(fields: str, sent: Sequence[tuple[str, str]]) -> Markup:
    """The controls of a form, as a template of ours has written them, with the values that were sent. What is hidden
    stays; the first that is not gets the focus, so that the page scrolls there.

    >>> print(with_typed('<input name="for" value=""><input type="checkbox" name="all" value="1">', [("for", '"<1h"')]))
    <input name="for" value="&#34;&lt;1h&#34;" autofocus><input type="checkbox" name="all" value="1">
    """
    return _Filling(sent).filled(fields)


class _Filling:
    def __init__(self, sent: Sequence[tuple[str, str]]) -> None:
        self._sent = sent
        self._select = ""
        self._has_focus = False

    def filled(self, fields: str) -> Markup:
        return Markup(_CONTROL.sub(self._control, fields))  # what was typed is escaped where it is put in

    def _control(self, found: re.Match[str]) -> str:
        tag, text = (found[1], found[2]) if found[1] else (found[3], found[4])
        attributes = {name: unescape(value) for name, value in _ATTRIBUTE.findall(text)}
        if tag == "option":
            is_chosen = (self._select, attributes.get("value", "")) in self._sent
            return f"<option{_CHECKED.sub('', text)}{' selected' if is_chosen else ''}>" if self._select else found[0]
        kind, name = attributes.get("type", ""), attributes.get("name", "")
        if kind == "hidden" or not name:
            return found[0]
        values = [value for key, value in self._sent if key == name]
        if tag == "select":
            self._select = name if values else ""
            return f"<select{text}{self._focus()}>"
        if kind in ("checkbox", "radio"):
            is_on = attributes.get("value", "on") in values
            return f"<input{_CHECKED.sub('', text)}{' checked' if is_on else ''}{self._focus()}>"
        if not values:
            return f"<{tag}{text}{self._focus()}>{found[0].partition('>')[2]}"
        if tag == "textarea":
            return f"<textarea{text}{self._focus()}>\n{escape(values[0])}"
        return f'<input{_VALUE.sub("", text, count=1)} value="{escape(values[0])}"{self._focus()}>'

    def _focus(self) -> str:
        if self._has_focus:
            return ""
        self._has_focus = True
        return " autofocus"
