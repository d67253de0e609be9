"""A worker that begins anew as the same process: new code, no threads that hang, the same pid for who watches it."""

from __future__ import annotations

import os
import sys
from typing import NoReturn

from pinlater_workers.cli.leaving import flush

_STARTED_IN = os.getcwd()
"""Where it was started: a relative path on the command line means the same again."""


def replace_itself() -> NoReturn:
    """Run the same command again in this process. Threads end here; descriptors close, as Python opens them for that.

    Nothing may run that ends with this process's threads or connections: the worker has ended its children before.
    """
    flush()
    os.chdir(_STARTED_IN)
    os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
