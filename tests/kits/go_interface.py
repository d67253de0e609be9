"""The interface of the Go kit: what it calls of thrift/pinlater.thrift, with the classes that Apache's compiler makes.

    python -m tests.kits.go_interface

writes workers/go/internal/wire. A Go module has to carry its generated classes, and those of the whole interface would
be seven times as many lines. Ids, comments and whole structs stay as they are; methods that the kit does not call go,
and with them the types that nothing else names.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
INTERFACE = ROOT / "thrift" / "pinlater.thrift"
KIT = ROOT / "workers" / "go"
FOLDER = KIT / "internal" / "wire"

CALLS = (
    "createQueue",
    "enqueueJobs",
    "dequeueFromQueues",
    "ackJobs",
    "checkpointJobs",
    "lookupJobs",
    "cancelJobs",
    "heartbeatJobs",
    "getAccess",
)
"""The methods that the kit calls."""

HEADER = """\
// Made of thrift/pinlater.thrift by `python -m tests.kits.go_interface`: what the Go kit calls. Do not edit.

namespace go wire
"""

_DEFINITION = re.compile(
    r"(?:/\*\*(?:(?!\*/).)*\*/\n)?^(enum|struct|exception|const string) (\w+).*?(?:^\}|\")\n", re.MULTILINE | re.DOTALL
)
_METHOD = re.compile(
    r"(?:  /\*\*(?:(?!\*/).)*\*/\n)?  [\w<>, ]+ (\w+)\(1:(?:(?!\n  /\*\*).)*?throws \(.*?\),\n", re.DOTALL
)
_WORD = re.compile(r"\b[A-Za-z_]\w*\b")
_COMMENT = re.compile(r"/\*\*.*?\*/", re.DOTALL)


def trimmed(interface: str) -> str:
    """The interface with CALLS alone, and the types that they need, in order. ValueError: a method is not there."""
    types, _, service = interface.partition("service PinLater {\n")
    methods = {match[1]: match[0] for match in _METHOD.finditer(service)}
    if missing := [name for name in CALLS if name not in methods]:
        raise ValueError(f"no method {', '.join(missing)} in the interface")
    definitions = {match[2]: match[0] for match in _DEFINITION.finditer(types)}
    needed: set[str] = set()
    named = {word for name in CALLS for word in _words(methods[name])}
    while new := named & definitions.keys() - needed:
        needed |= new
        named = {word for name in new for word in _words(definitions[name])}
    kept = [text for name, text in definitions.items() if name in needed]
    calls = "\n".join(text for name, text in methods.items() if name in CALLS)
    return "\n".join([HEADER, *kept, f"service PinLater {{\n{calls}}}\n"])


def _words(text: str) -> list[str]:
    return _WORD.findall(_COMMENT.sub("", text))


def written(interface: str) -> dict[str, str]:
    """The files of the folder by name. FileNotFoundError: there is no compiler (thrift-compiler 0.17)."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "pinlater.thrift")
        source.write_text(trimmed(interface), encoding="utf-8")
        subprocess.run(["thrift", "-nowarn", "--gen", "go", "-out", folder, str(source)], check=True)
        classes = {path.name: path.read_text(encoding="utf-8") for path in sorted(Path(folder, "wire").glob("*.go"))}
        return {source.name: source.read_text(encoding="utf-8"), **classes}


def main() -> None:
    files = written(INTERFACE.read_text(encoding="utf-8"))
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name, text in files.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
