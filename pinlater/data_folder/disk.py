"""The room on the disk of the data folder."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

DESCRIBED = "disk_low"
"""What a lease says: how many bytes are free, and how many there are."""

LEAST_FREE = 0.1
"""A disk on which less than this part is free is low."""


def describe_disk(folder: Path) -> Mapping[str, Any]:
    """For the lease of a process: nothing while there is room, or where that cannot be told."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:
        return {}
    return {DESCRIBED: [usage.free, usage.total]} if usage.free < LEAST_FREE * usage.total else {}
