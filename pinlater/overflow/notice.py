"""Where the other processes of a server find the owner of its overflow shard: `overflow.json` in the data folder.

    {"address": "127.0.0.1:41234", "pid": 4711}

Only the owner writes it. After a crash it names a process that is gone, until another one has taken over.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from pinlater.private_files import write_private_file

FILE = "overflow.json"


def put_up(folder: Path, address: str) -> None:
    """OSError."""
    write_private_file(folder / FILE, json.dumps({"address": address, "pid": os.getpid()}) + "\n")


def read(folder: Path) -> str | None:
    """The owner's address; None where nobody has put one up."""
    try:
        address = json.loads((folder / FILE).read_text(encoding="utf-8"))["address"]
    except (OSError, ValueError, LookupError, TypeError):
        return None
    return address if isinstance(address, str) else None


def take_down(folder: Path) -> None:
    (folder / FILE).unlink(missing_ok=True)
