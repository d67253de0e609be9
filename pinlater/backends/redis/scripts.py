"""The Lua scripts of lua/: `--#include NAME` takes in _NAME.lua, and a script is called by its SHA1."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^--#include ([a-z]+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    name: str
    source: str
    sha: str


@cache
def load_scripts() -> dict[str, Script]:
    """All scripts by name."""
    folder = files("pinlater.backends.redis") / "lua"
    texts = {entry.name[:-4]: entry.read_text("utf-8") for entry in folder.iterdir() if entry.name.endswith(".lua")}
    scripts = {}
    for name, text in texts.items():
        if not name.startswith("_"):
            source = _INCLUDE.sub(lambda match: texts["_" + match[1]], text)
            scripts[name] = Script(name, source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())
    return scripts
