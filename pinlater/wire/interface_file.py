"""The reader of the interface file: its structs, enums and methods as they are written there.

It knows what the file uses of Thrift's language, in the form that the file has, and refuses what it does not know. A
parser of the whole language takes far longer, in every program that has a client; a test compares what both find.
"""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path
from typing import NamedTuple

FILE_NAME = "pinlater.thrift"

_COMMENT = re.compile(r"/\*.*?\*/|(?://|#)[^\n]*", re.DOTALL)
_PART = re.compile(
    r"\s*(?:namespace \w+ [\w.]+|const \w+ (?P<const>\w+) = (?P<value>\S+)"
    r"|(?P<kind>enum|struct|exception|service) (?P<name>\w+)\s*\{(?P<body>[^{}]*)\})"
)
_FIELD = re.compile(
    r"\s*(?P<id>\d+): (?:(?P<need>required|optional) )?(?P<type>[\w<>, ]+?) (?P<name>\w+)(?: = (?P<default>[^,)\s]+))?"
    r"\s*(?:,|$)"
)
_MEMBER = re.compile(r"\s*(?P<name>\w+) = (?P<value>\d+)\s*(?:,|$)")
_METHOD = re.compile(
    r"\s*(?P<returns>[\w<>, ]+?) (?P<name>\w+)\((?P<args>[^()]*)\)\s*throws\s*\((?P<throws>[^()]*)\)\s*(?:,|$)"
)
_WORDS: dict[str, bool] = {"true": True, "false": False}


class FieldSpec(NamedTuple):
    """A field as it is written; `type` is a text such as `list<string>`, `default` a value of that type, or None."""

    id: int
    name: str
    type: str
    is_required: bool
    default: object


class MethodSpec(NamedTuple):
    """A method: what it takes, and what its answer holds (`success`, unless it is void, and its exceptions)."""

    args: list[FieldSpec]
    result: list[FieldSpec]


class Interface(NamedTuple):
    """All of the file. Exceptions are among the structs."""

    structs: dict[str, list[FieldSpec]]
    enums: dict[str, dict[str, int]]
    methods: dict[str, MethodSpec]


def interface_path() -> Path:
    """Where the interface file lies: in this checkout, else in the installed package."""
    beside = Path(__file__).resolve().parents[2] / "thrift" / FILE_NAME
    if beside.is_file():
        return beside
    return Path(str(resources.files("pinlater.idl") / FILE_NAME))


def read_interface(text: str) -> Interface:
    """ValueError: there is something that this reader does not know."""
    found = Interface({}, {}, {})
    consts: dict[str, object] = {}
    for part in _all_of(_PART, _COMMENT.sub("", text)):
        name, body = part["name"], part["body"]
        if part["const"]:
            consts[part["const"]] = _value(part["value"], consts)
        elif part["kind"] == "enum":
            members = {each["name"]: int(each["value"]) for each in _all_of(_MEMBER, body)}
            found.enums[name] = members
            consts |= {f"{name}.{member}": value for member, value in members.items()}
        elif part["kind"] == "service":
            found.methods.update((each["name"], _method(each, consts)) for each in _all_of(_METHOD, body))
        elif name is not None:
            found.structs[name] = _fields(body, consts)
    return found


def _all_of(pattern: re.Pattern[str], text: str) -> list[re.Match[str]]:
    """The text, taken apart without rest."""
    found, at = [], 0
    while text[at:].strip():
        match = pattern.match(text, at)
        if match is None:
            raise ValueError(f"{FILE_NAME} has what is not known here: {text[at:].strip()[:80]!r}")
        found.append(match)
        at = match.end()
    return found


def _fields(body: str, consts: dict[str, object]) -> list[FieldSpec]:
    return [
        FieldSpec(
            int(each["id"]),
            each["name"],
            each["type"],
            each["need"] == "required",
            None if each["default"] is None else _value(each["default"], consts),
        )
        for each in _all_of(_FIELD, body)
    ]


def _method(found: re.Match[str], consts: dict[str, object]) -> MethodSpec:
    result = _fields(found["throws"], consts)
    if found["returns"] != "void":
        result.insert(0, FieldSpec(0, "success", found["returns"], False, None))
    return MethodSpec(_fields(found["args"], consts), result)


def _value(text: str, consts: dict[str, object]) -> object:
    if text[0] == '"':
        return text[1:-1]
    if text in consts:
        return consts[text]
    return _WORDS[text] if text in _WORDS else float(text) if "." in text else int(text)
