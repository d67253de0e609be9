"""The witness in a worker: a thread that tells the heartbeat process what holds up the event loop, when it is asked.

It waits for a question and does nothing else. Where a job holds the interpreter too, no answer comes.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

from pinlater_workers.child_sockets import BlockingSocket
from pinlater_workers.heartbeat.messages import BlockedBy, read_by_witness, written


class LoopWitness:
    """Ends with the other end of its connection. `describe` is called in its thread."""

    def __init__(self, connection: socket.socket, describe: Callable[[], BlockedBy]) -> None:
        self._socket = BlockingSocket(connection.detach(), read_by_witness)
        self._describe = describe
        threading.Thread(target=self._serve, name="pinlater-witness", daemon=True).start()

    def _serve(self) -> None:
        while self._socket.receive() is not None:
            answer = BlockedBy()
            with contextlib.suppress(RuntimeError):  # the loop goes round again, and what is looked at changes
                answer = self._describe()
            with contextlib.suppress(OSError):  # the process is gone
                self._socket.send(written(answer))
        self._socket.close()
