"""Rows of data on stdout: as a table for people, as one JSON document, or as one JSON object per line.

JSON has the keys and words of the HTTP interface; with `--json-keys old` until 0.2.0 those of earlier versions.

Rows leave as they come, so that a long scan can be followed, and needs no memory.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import click

from pinlater.cli.table_looks import has_colors, looks_options, painted, shows_ages
from pinlater.cli.times import MomentText, from_now
from pinlater.clock import SystemClock
from pinlater.printable import json_text, printable
from pinlater.text_table import Column, TextTable, cell_text, terminal_width

Row = Mapping[str, Any]
"""A value per column, as in JSON; a table may show fewer columns."""

ToRow = Callable[[Any], Row]

Columns = Sequence[str | Column]

FORMATS = ("table", "json", "jsonl")
NO_QUEUES = "there are no queues; `pinlater queue create NAME` makes one"
_OLD_KEYS = f"{__name__}.old_keys"


class Output(Protocol):
    """Where a command writes things, each a row; `close` once at the end, also where there were none."""

    def write(self, things: Iterable[Any]) -> None: ...

    def close(self) -> None: ...


class Table:
    """`columns` are shown, as wide as a terminal is. Without any row nothing is printed but `empty`, on stderr: that
    nothing is there, and what to do.

    The first one names the thing, and is whole: people give it to the next command.
    """

    def __init__(self, columns: Columns, row: ToRow, empty: str = "") -> None:
        first, *others = [each if isinstance(each, Column) else Column(each) for each in columns]
        self._columns = [first._replace(is_whole=True), *others]
        self._row = row
        self._table = TextTable(self._columns)
        self._empty = empty

    def write(self, things: Iterable[Any]) -> None:
        cells = [[row.get(column.heading) for column in self._columns] for row in map(self._row, things)]
        if cells:
            if shows_ages():
                now_ms = SystemClock().now_ms()
                cells = [[_age(cell, now_ms) for cell in row] for row in cells]
            has_paint = has_colors()
            lines = self._table.lines(cells, terminal_width(), painted if has_paint else None)
            _echo_lines(lines, color=has_paint or None)
            self._empty = ""

    def close(self) -> None:
        if self._empty:
            click.echo(f"pinlater: {printable(self._empty)}", err=True)


class JsonLines:
    def __init__(self, row: ToRow) -> None:
        self._row = row

    def write(self, things: Iterable[Any]) -> None:
        _echo_lines(json_text(self._row(thing)) for thing in things)

    def close(self) -> None:
        pass


class JsonArray:
    """One document: a list of all rows."""

    def __init__(self, row: ToRow) -> None:
        self._row = row
        self._begun = False

    def write(self, things: Iterable[Any]) -> None:
        text = ",\n ".join(json_text(self._row(thing)) for thing in things)
        if text:
            click.echo((",\n " if self._begun else "[") + text, nl=False)
            self._begun = True

    def close(self) -> None:
        click.echo("]" if self._begun else "[]")


def json_object(thing: Any) -> dict[str, Any]:
    """The JSON that HTTP sends of a thing of the model."""
    # a table needs none of it, and every command would start later
    from pinlater.http.model_json import json_bytes  # noqa: PLC0415

    found: dict[str, Any] = json.loads(json_bytes(thing))
    return found


def open_output(
    format: str, columns: Columns, row: ToRow = dict, to_json: ToRow = json_object, empty: str = ""
) -> Output:
    """`row` makes of a thing what a table shows, and the object of `--json-keys old`; `to_json` the one of now."""
    if format == "table":
        return Table(columns, row, empty)
    to_json = to_json if has_new_keys(format) else row
    return JsonArray(to_json) if format == "json" else JsonLines(to_json)


def write_all(
    format: str,
    columns: Columns,
    things: Iterable[Any],
    row: ToRow = dict,
    to_json: ToRow = json_object,
    empty: str = "",
) -> None:
    """All the rows of a short answer."""
    output = open_output(format, columns, row, to_json, empty)
    output.write(things)
    output.close()


def whole(heading: str, worth: int = 7) -> Column:
    """A column whose texts are not cut: times, names of jobs. The worth: see Column."""
    return Column(heading, worth, is_whole=True)


def write_one(format: str, column: str, value: Any, key: str | None = None) -> None:
    """An answer that is one value: the bare value, or a JSON object. `key`: that of now, where it has another name."""
    name = key if key is not None and has_new_keys(format) else column
    click.echo(cell_text(value) if format == "table" else json_text({name: value}))


def renamed(**names: str) -> ToRow:
    """
    >>> renamed(queue="name")({"queue": "mail", "failed": 0})
    {'name': 'mail', 'failed': 0}
    """
    return lambda row: {names.get(key, key): value for key, value in row.items()}


def lower_outcome(row: Row) -> Row:
    """
    >>> lower_outcome({"job": "mail:s1:p1:1790000000000000", "outcome": "ENDED"})
    {'descriptor': 'mail:s1:p1:1790000000000000', 'outcome': 'ended'}
    """
    row = renamed(job="descriptor")(row)
    return {**row, "outcome": row["outcome"].lower()} if "outcome" in row else row


def has_new_keys(format: str) -> bool:
    """Whether this command prints JSON, and with the keys of the HTTP interface."""
    return format != "table" and not click.get_current_context().meta.get(_OLD_KEYS)


def _keep_json_keys(context: click.Context, _: click.Parameter, keys: str) -> None:
    context.meta[_OLD_KEYS] = keys == "old"


def json_keys_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """--json-keys."""
    return click.option(
        "--json-keys",
        type=click.Choice(("new", "old")),
        default="new",
        envvar="PINLATER_JSON_KEYS",
        expose_value=False,
        callback=_keep_json_keys,
        help="The keys of JSON: those of HTTP, or until 0.2.0 those of earlier versions. [env: PINLATER_JSON_KEYS; "
        "default: new]",
    )(command)


def output_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """-o, as the argument `format`, with --json-keys, --color and --time."""
    command = looks_options(command)
    return click.option(
        "-o", "--output", "format", type=click.Choice(FORMATS), default="table", show_default=True, help="How to print."
    )(json_keys_option(command))


def _age(cell: Any, now_ms: int) -> Any:
    return from_now(cell.ms, now_ms) if isinstance(cell, MomentText) else cell


def _echo_lines(lines: Iterable[str], *, color: bool | None = None) -> None:
    """All at once: one write and one flush for rows that came together. `color`: those in them go to any stream."""
    text = "\n".join(lines)
    if text:
        click.echo(text, color=color)


def counted(number: int, thing: str) -> str:
    """
    >>> counted(1, "job"), counted(2_000, "job")
    ('1 job', '2,000 jobs')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"
