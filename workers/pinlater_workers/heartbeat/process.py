"""`python -m pinlater_workers.heartbeat.process FD PARENT FD`: the heartbeat process of the worker with that id.

The first FD is its end of a socket pair. It ends when the worker closes the other end, or when the worker is gone. The
second one leads to the worker's witness (`loop_witness`); a worker of an earlier version gives none.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys

from pinlater.child_process import die_with_parent, on_parent_gone
from pinlater_workers.child_sockets import LoopSocket
from pinlater_workers.heartbeat.blocked_loop import BlockedLoop
from pinlater_workers.heartbeat.heartbeat_loop import HeartbeatLoop
from pinlater_workers.heartbeat.messages import (
    Begin,
    ClaimsRenewed,
    ProcessReady,
    ToProcess,
    ToWorker,
    read_by_process,
    written,
)
from pinlater_workers.observability.logs import configure_child

UNREAD_BYTES = 65_536


class ParentLink:
    """The connection to the worker. `ended` is set when there is nothing left to do."""

    def __init__(self, connection: socket.socket, worker: int, witness: socket.socket | None) -> None:
        self.ended = asyncio.Event()
        self._worker = worker
        self._witness = witness
        self._beats: HeartbeatLoop | None = None
        self._run: asyncio.Task[None] | None = None
        self._watch: asyncio.Task[None] | None = None
        self._socket = LoopSocket(connection, read_by_process, self._received, self.ended.set)

    def _received(self, message: ToProcess) -> None:
        if isinstance(message, Begin):
            self._beats = beats = HeartbeatLoop(message, self._send)
            self._run = asyncio.create_task(beats.run())
            self._run.add_done_callback(lambda _: self.ended.set())
            if self._witness is not None:
                watch = BlockedLoop(self._witness, self._worker, beats, ends_worker=message.may_end)
                self._watch = asyncio.create_task(watch.run())
            if message.hears_ready:
                self._send(ProcessReady())
        elif self._beats is not None:
            self._beats.receive(message)

    def _send(self, message: ToWorker) -> None:
        """Good beats are not worth a growing heap when the worker does not read: later ones say the same."""
        if not isinstance(message, ClaimsRenewed) or self._socket.unsent_bytes <= UNREAD_BYTES:
            self._socket.send(written(message))

    async def finish(self) -> None:
        """Ends the beats, after the last word of a worker that has ended in order. Raises what ended them by itself, if
        that is why.
        """
        self._socket.close()
        if self._beats is not None:
            await self._beats.last_report()
        for task in (self._watch, self._run):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task


async def serve(end: socket.socket, parent: int, witness: socket.socket | None) -> None:
    link = ParentLink(end, parent, witness)
    on_parent_gone(parent, lambda: os._exit(0))
    await link.ended.wait()
    await link.finish()


def main() -> None:
    descriptor, parent = int(sys.argv[1]), int(sys.argv[2])
    die_with_parent(parent)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGTTOU):
        signal.signal(number, signal.SIG_IGN)  # the worker needs its claims until it has ended
    configure_child()
    with socket.socket(fileno=descriptor) as end:
        asyncio.run(serve(end, parent, socket.socket(fileno=int(sys.argv[3])) if len(sys.argv) > 3 else None))


if __name__ == "__main__":
    main()
