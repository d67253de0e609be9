"""The names of claims: `SERVER:PROCESS:START:COUNTER:SOURCE`, each used for one dequeue call only."""

from __future__ import annotations

from itertools import count


class ClaimNames:
    """Names that no other server, process or start of it makes. A colon in the server's name becomes a dash."""

    def __init__(self, server: str, process: int | str, started_ms: int) -> None:
        self.server = server
        self._prefix = f"{server.replace(':', '-')}:{str(process).replace(':', '-')}:{started_ms}:"
        self._counter = count(1)

    def next(self, source: str) -> str:
        return f"{self._prefix}{next(self._counter)}:{source}"
