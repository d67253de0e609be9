"""Values from shells, editors, secrets and clusters: variables of the environment, lines and files.

A secret in a file or a variable ends with a newline, Windows adds a carriage return and a byte order mark, web pages
have no-break spaces, `docker --env-file` keeps quotes, and Kubernetes sets variables by the names of Services.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from typing import Any

_MARK = "\ufeff"
_AROUND = f"{_MARK}\u200b\u2060\0"
"""What is no white space for Python, and cannot be seen either."""

_QUOTES = ("'", '"')
_LINK = re.compile(r"(tcp|udp|sctp)://[^/]+:\d+")
_LINK_NAME = re.compile(r"\w+_SERVICE_(HOST|PORT(_\w+)?)|\w+_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?")
_TYPED = {
    "\u00a0": "a no-break space",
    "\u201c": "a typographic quote",
    "\u201d": "a typographic quote",
    "\u2018": "a typographic quote",
    "\u2019": "a typographic quote",
}


def variable(name: str, environment: Mapping[str, str] | None = None) -> str:
    """What a variable of the environment says; "": nothing, as where it is empty. A link to a Service says nothing.

    >>> variable("PINLATER_PORT", {"PINLATER_PORT": ' "9010"\\r\\n'})
    '9010'
    >>> variable("PINLATER_PORT", {"PINLATER_PORT": "tcp://10.0.0.1:9010"})
    ''
    """
    text = stripped((os.environ if environment is None else environment).get(name, ""))
    if len(text) > 1 and text[0] in _QUOTES and text[-1] == text[0]:
        text = stripped(text[1:-1])
    return "" if is_service_link(name, text) else text


def secret_variable(name: str) -> str:
    """The same of a password, which may have any characters but line breaks at its ends."""
    return secret_line(os.environ.get(name, ""))


def secret_line(text: str) -> str:
    """A password without what files and pipes put around it: a byte order mark, and line breaks."""
    return text.removeprefix(_MARK).rstrip("\r\n")


def stripped(text: str) -> str:
    """Without white space and what nobody can see at its ends.

    >>> stripped("\\ufeff redis://127.0.0.1\\u00a0\\r\\n")
    'redis://127.0.0.1'
    """
    before = None
    while before != text:
        before, text = text, text.strip().strip(_AROUND)
    return text


def is_service_link(name: str, value: str) -> bool:
    """Whether Kubernetes, or a Docker link, set a variable, as it does in each pod for a Service of our name.

    >>> is_service_link("PINLATER_PORT", "tcp://10.0.0.1:9010"), is_service_link("PINLATER_PORT", "9010")
    (True, False)
    """
    return bool(_LINK_NAME.fullmatch(name) or (name.endswith("_PORT") and _LINK.fullmatch(value)))


def text_of(content: bytes, errors: str = "strict") -> str:
    """The text of a file that a person wrote, with whichever editor. UnicodeError: it is UTF-16, or, where `errors` is
    "strict", no UTF-8.
    """
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise UnicodeError("it is UTF-16, as PowerShell writes it; save it as UTF-8")
    return content.decode("utf-8-sig", errors)


def toml_of(content: bytes) -> dict[str, Any]:
    """The tables of a file in TOML. ValueError."""
    text = text_of(content)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r"at line (\d+)", str(error))
        line = text.split("\n")[int(found[1]) - 1] if found else ""
        typed = next((what for each, what in _TYPED.items() if each in line), None)
        if typed is None:
            raise
        raise ValueError(f"{error}; there is {typed} in this line, as in texts that are copied from a page") from error
