"""Files with the value of a setting that has a secret: `--flows-file FILE` in place of `--flows URL`.

A command line can be read by every user of a machine, and a variable is handed to every program that is started. Such a
file is for its owner alone; a setting that may be given several times has one value a line there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

from pinlater.config.settings import FILE_SETTINGS
from pinlater.data_folder.private_files import SecretFileOpen, read_secret_file
from pinlater.written import stripped


@dataclass(frozen=True, slots=True)
class Given:
    """A value as it was written, and where."""

    value: object
    origin: str


class SecretFileInvalid(Exception):
    """A file cannot be used: the setting that names it, the path, what is allowed, and where it was written."""

    def __init__(self, key: str, path: str, allowed: str, origin: str) -> None:
        super().__init__(allowed)
        self.key, self.path, self.allowed, self.origin = key, path, allowed, origin


def with_files_read(given: Mapping[str, Given], repeatable: Collection[str]) -> dict[str, Given]:
    """What one source says, with the contents of files in place of the settings that name them. SecretFileInvalid."""
    found = {name: each for name, each in given.items() if name not in FILE_SETTINGS}
    for file_name, name in FILE_SETTINGS.items():
        if file_name not in given:
            continue
        written = given[file_name]
        paths = written.value if isinstance(written.value, list) else [written.value]
        if name in found:
            raise SecretFileInvalid(file_name, str(paths[0]), f"one of it and {name}", written.origin)
        lines = [line for path in paths for line in _lines(file_name, path, written.origin)]
        if name not in repeatable and len(lines) != 1:
            raise SecretFileInvalid(file_name, str(paths[0]), "a file with one line that says it", written.origin)
        found[name] = Given(lines if name in repeatable else lines[0], written.origin)
    return found


def _lines(key: str, path: object, origin: str) -> list[str]:
    """Those that say something."""
    try:
        text = read_secret_file(Path(str(path)).expanduser())
    except SecretFileOpen as open_file:
        allowed = f"a file that its owner alone can read ({open_file})"
    except (OSError, ValueError) as error:
        allowed = f"a file that can be read ({getattr(error, 'strerror', None) or error})"
    else:
        return [line for line in map(stripped, text.splitlines()) if line]
    raise SecretFileInvalid(key, str(path), allowed, origin)
