"""The admin password: who may try it and how often, and what is said of those who guess.

The first few wrong passwords of an address cost nothing, since people mistype. After each further one nothing is
checked for that address during a pause, which grows. Checks run in one thread of their own, one address after the
other, so that guesses delay neither other calls nor a right password from another address.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from pinlater.access.guesses import MAX_WAITING, MAX_WAITING_EACH, Guesser, Guessers
from pinlater.data_folder.password import is_random, verify_password
from pinlater.errors import Overloaded, PasswordInvalid
from pinlater.service.audit import Audit

_MAX_CHARS = 1_024
_NICENESS = 5
_NO_PASSWORD = (
    "this server has no admin password, so what needs one is refused; start it with --admin-password-hash HASH, as "
    "`pinlater admin hash-password` prints it (a server makes a password by itself only where it listens on a loopback "
    "address and keeps all jobs in SQLite)"
)


class Operator(NamedTuple):
    """Who asks for a change: what the caller calls itself, its address as sockets have it, whether a rule or a role
    allows the call, so that no password is needed, and whose is what comes by it ("": nobody's).
    """

    who: str
    peer: object = None
    is_granted: bool = False
    owner: str = ""


class AdminPassword:
    """Checks passwords against the one hash. A caller without an address shares one with all others like it."""

    def __init__(self, password_hash: str, audit: Audit, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._hash = password_hash
        self._guessers = Guessers("password", audit.refused, monotonic)
        self._turns = asyncio.Semaphore(1)
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "admin-password", initializer=_give_way)

    def close(self) -> None:
        """Checks nothing any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def check(self, password: str, operator: Operator) -> None:
        """PasswordInvalid: it is wrong, or no hash is configured. Overloaded: it was not checked; try again later.

        Who may do this without one needs to send none; one that is sent all the same has to be right, so that nobody
        takes it for tried.
        """
        if operator.is_granted and not (password and self._hash):
            return
        if not self._hash:
            raise PasswordInvalid(_NO_PASSWORD)
        guesser = self._guessers.of(operator.peer)
        try:
            # nobody can guess a random one, so nobody who knows it has to wait
            if not (is_random(self._hash) and self._is_right(password)) and not await self._check(guesser, password):
                self._guessers.was_wrong(guesser, operator.who)
                needless = "; this caller needs none for it: send no password" if operator.is_granted else ""
                raise PasswordInvalid(f"the admin password is wrong{needless}")
            self._guessers.was_right(guesser)
        finally:
            self._guessers.done(guesser)

    async def _check(self, guesser: Guesser, password: str) -> bool:
        """In turn: first among the calls of one address, then among the addresses, each of which waits there once."""
        self._refuse_in_pause(guesser)
        if guesser.waiting >= MAX_WAITING_EACH or self._waiting >= MAX_WAITING:
            raise Overloaded.by("waiting_passwords", "too many passwords are being checked", retry_after_ms=1_000)
        guesser.waiting += 1
        self._waiting += 1
        try:
            async with guesser.turn:
                self._refuse_in_pause(guesser)
                async with self._turns:
                    loop = asyncio.get_running_loop()
                    return await loop.run_in_executor(self._thread, self._is_right, password)
        finally:
            guesser.waiting -= 1
            self._waiting -= 1

    def _is_right(self, password: str) -> bool:
        return verify_password(password[:_MAX_CHARS], self._hash) and len(password) <= _MAX_CHARS

    def _refuse_in_pause(self, guesser: Guesser) -> None:
        left_s = guesser.paused_until_s - self._guessers.now_s()
        if left_s > 0:
            guesser.refused += 1
            text = (
                f"{guesser.wrong} wrong admin passwords came from {guesser.address}; the next one is checked in "
                f"{left_s:.1f} s, or at once from another address"
            )
            raise Overloaded.by("password_pauses", text, retry_after_ms=int(left_s * 1000) + 1)


def _give_way() -> None:
    """The thread of the checks lets every other thread of the machine go first."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
