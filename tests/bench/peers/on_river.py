"""The jobs on River, which its own client in Go inserts: a program that takes a line for each batch."""

from __future__ import annotations

import os
import subprocess

_program = subprocess.Popen(
    [os.environ["BENCH_RIVER"], "send"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
)


def send(queue: str, sent_ns: list[int]) -> None:
    _program.stdin.write(f"{queue} {' '.join(map(str, sent_ns))}\n")
    if not _program.stdout.readline():
        raise RuntimeError("River's producer has ended")
