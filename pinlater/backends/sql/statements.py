"""Named statements, read from a .sql file: each begins with a line `-- name: NAME`; other comments are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files

_MARK = "-- name: "


def load_statements(file_name: str) -> Mapping[str, str]:
    """The statements of one dialect, by name, without comments."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in files(__package__).joinpath(file_name).read_text(encoding="utf-8").splitlines():
        if line.startswith(_MARK):
            name = line.removeprefix(_MARK).strip()
            found[name] = []
        elif name:
            found[name].append(line.partition("--")[0].rstrip())
    return {name: "\n".join(filter(None, lines)) for name, lines in found.items()}


def parts(statement: str) -> list[str]:
    """The single statements of a script, which are parted by a semicolon at the end of a line."""
    return [part for part in (text.strip() for text in f"{statement}\n".split(";\n")) if part]
