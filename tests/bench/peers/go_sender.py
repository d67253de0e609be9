"""Jobs that a product's own client in Go enqueues: a program that takes a line for each batch."""

from __future__ import annotations

import os
import subprocess

_program = subprocess.Popen(
    [os.environ["BENCH_SENDER"], "send"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
)


def send(queue: str, sent_ns: list[int]) -> None:
    _program.stdin.write(f"{queue} {' '.join(map(str, sent_ns))}\n")
    if not _program.stdout.readline():
        raise RuntimeError("the producer in Go has ended")
