"""How a call can fail between the client and one server; callers of the client never see these."""

from __future__ import annotations


class CallFailed(Exception):
    """No answer. `sent` False: the server surely never saw the call; True: it may have carried it out.

    `busy`: the client had no time or no connection left, which says nothing about the server.
    """

    def __init__(self, why: str, *, sent: bool, busy: bool = False) -> None:
        super().__init__(why)
        self.why = why
        self.sent = sent
        self.busy = busy
