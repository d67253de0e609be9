"""The tables of docs/wire.md, from the interface file: enums, structs, methods, and the fields from id 100 on.

`python -m tests.packaging.wire_tables` writes them anew; a test compares them. A table stands between two marks. That
of structs names those that it has; a struct that no mark names is an error. What a field means is its comment in the
interface file, but for the fields from id 100 on of classic structs: there the page's own words stay, and a field that
has none yet gets a row with its comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tests.packaging.marks import TableMark, marks, refilled

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "wire.md"
INTERFACE = ROOT / "thrift" / "pinlater.thrift"
CLASSIC = re.compile(
    r"(create|delete)Queue|(enqueue|dequeue|ackDequeued|checkpoint|lookup|scan|retryFailed|delete)Jobs"
    r"|getJobCount|getQueueNames|ErrorCode|PinLaterJobState"
)
"""Methods and enums that were there before this server."""

OURS_FROM = 100

_COMMENT = r"(?:^ *//.*\n)*(?:^ */\*\*(?P<comment>(?:(?!\*/).)*)\*/\n)?"
_TYPE = re.compile(rf"{_COMMENT}^(?P<kind>enum|struct|exception) (?P<name>\w+) \{{\n(?P<body>.*?)^\}}", re.M | re.S)
_FIELD = re.compile(
    rf"{_COMMENT}^ +(?P<id>\d+): (?P<need>required|optional) (?P<type>[\w<>, ]+?) (?P<name>\w+)"
    r"(?: = (?P<value>[^,]+))?,$",
    re.M | re.S,
)
_MEMBER = re.compile(rf"{_COMMENT}^ +(?P<name>\w+) = (?P<value>\d+),$", re.M | re.S)
_METHOD = re.compile(r"^  ([\w<>, ]+) (\w+)\(1: RequestContext context(?:, )?([^)]*)\)\s+throws", re.M)
_ROW = re.compile(r"^\| (?P<where>\w+) \| `(?P<fields>.+)` \| (?P<meaning>.+) \|$", re.M)


class _Field(NamedTuple):
    number: int
    written: str
    comment: str


def with_tables(page: str, interface: str) -> str:
    """The page with its tables as they are now."""
    structs = {
        type_["name"]: [_field(field) for field in _FIELD.finditer(type_["body"])]
        for type_ in _TYPE.finditer(interface)
        if type_["kind"] != "enum"
    }
    comments = {type_["name"]: _text(type_["comment"]) for type_ in _TYPE.finditer(interface)}
    named = [name for mark in marks(page) for name in mark.names]
    if sorted(named) != sorted(structs):
        raise ValueError(f"each struct is to stand in one mark: {sorted({*named} ^ structs.keys()) or sorted(named)}")

    def rows(mark: TableMark) -> Iterator[tuple[str, ...]]:
        match mark.kind:
            case "enums":
                return _enums(interface)
            case "methods":
                return _methods(interface)
            case "fields":
                return _added(mark.rows, structs)
            case _:
                return _structs(mark.names, structs, comments)

    return refilled(page, rows)


def _structs(
    names: list[str], structs: Mapping[str, list[_Field]], comments: Mapping[str, str]
) -> Iterator[tuple[str, ...]]:
    yield "struct", "fields"
    yield "---", "---"
    for name in names:
        fields = [each for each in structs[name] if each.number < OURS_FROM or not _is_classic(name)]
        lines = (f"`{each.written}`{_said(each.comment)}" for each in fields)
        yield name, "<br>".join([comments[name], *lines] if comments[name] else lines)


def _enums(interface: str) -> Iterator[tuple[str, ...]]:
    yield "enum", "values"
    yield "---", "---"
    for found in _TYPE.finditer(interface):
        if found["kind"] == "enum":
            members = [
                f"`{each['name']}` {each['value']}{_said(_text(each['comment']))}"
                for each in _MEMBER.finditer(found["body"])
            ]
            comment = _text(found["comment"])
            yield _named(found["name"]), "<br>".join([comment, *members] if comment else members)


def _methods(interface: str) -> Iterator[tuple[str, ...]]:
    yield "method", "the other arguments", "returns"
    yield "---", "---", "---"
    for returns, name, arguments in _METHOD.findall(interface):
        yield _named(name), arguments and f"`{arguments}`", f"`{returns}`"


def _added(rows: str, structs: Mapping[str, list[_Field]]) -> Iterator[tuple[str, ...]]:
    """The rows there are, with their fields as they are now, and those that are lacking."""
    yield "where", "field", "meaning"
    yield "---", "---", "---"
    lacking = {
        (name, each.number): each
        for name, fields in structs.items()
        for each in fields
        if each.number >= OURS_FROM and _is_classic(name)
    }
    for row in _ROW.finditer(rows):
        numbers = [int(each) for each in re.findall(r"(?:^|` · `)(\d+)", row["fields"])]
        fields = [lacking.pop((row["where"], number)) for number in numbers if (row["where"], number) in lacking]
        if fields:
            yield row["where"], " · ".join(f"`{each.written}`" for each in fields), row["meaning"]
    for (name, _), field in lacking.items():
        yield name, f"`{field.written}`", field.comment


def _field(found: re.Match[str]) -> _Field:
    value = f" = {found['value']}" if found["value"] else ""
    written = f"{found['id']} {found['need'][0]} {found['type']} {found['name']}{value}"
    return _Field(int(found["id"]), written, _text(found["comment"]))


def _text(comment: str | None) -> str:
    return " ".join(re.sub(r"^ *\* ", "", comment or "", flags=re.M).split()).replace("|", "\\|")


def _said(text: str) -> str:
    return f": {text}" if text else ""


def _is_classic(struct: str) -> bool:
    """Whether it may have fields below id 100 that are not ours."""
    return struct.startswith("PinLater") or struct == "RequestContext"


def _named(name: str) -> str:
    return name if CLASSIC.fullmatch(name) else f"{name} (ours)"


if __name__ == "__main__":
    text = with_tables(PAGE.read_text(encoding="utf-8"), INTERFACE.read_text(encoding="utf-8"))
    PAGE.write_text(text, encoding="utf-8")
