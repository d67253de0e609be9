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
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import structlog

from pinlater.background_tasks import exponential_backoff_s
from pinlater.data_folder.password import is_random, verify_password
from pinlater.errors import Overloaded, PasswordInvalid
from pinlater.model.connection_ref import host_of
from pinlater.service.audit import Audit

_log = structlog.get_logger("pinlater.service")

FREE_TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
FORGET_S = 3_600.0
"""An address of which no wrong password came for so long begins anew."""

MAX_ADDRESSES = 10_000
MAX_WAITING, MAX_WAITING_EACH = 64, 8
"""Checks that wait for their turn, in all and for one address; one more is refused."""

SAY_EVERY_S = 60.0
"""The log has one line in this time for each address that sends wrong passwords."""

_MAX_CHARS = 1_024
_NICENESS = 5
_NO_PASSWORD = (
    "this server has no admin password, so what needs one is refused; start it with --admin-password-hash HASH, as "
    "`pinlater admin hash-password` prints it (a server makes a password by itself only where it listens on a loopback "
    "address and keeps all jobs in SQLite)"
)


@dataclass(slots=True)
class _Guesser:
    """An address and the wrong passwords that came from it: `wrong` in all, `refused` unchecked since the last line."""

    address: str
    wrong_at_s: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    wrong: int = 0
    paused_until_s: float = 0.0
    refused: int = 0
    said_at_s: float | None = None


class Operator(NamedTuple):
    """Who asks for a change: what the caller calls itself, its address as sockets have it, and whether a rule or a role
    allows the call, so that no password is needed.
    """

    who: str
    peer: object = None
    is_granted: bool = False


class AdminPassword:
    """Checks passwords against the one hash. A caller without an address shares one with all others like it."""

    def __init__(self, password_hash: str, audit: Audit, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._hash = password_hash
        self._audit = audit
        self._now_s = monotonic
        self._guessers: OrderedDict[str, _Guesser] = OrderedDict()
        """The one whose last wrong password is the oldest comes first."""
        self._turns = asyncio.Semaphore(1)
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "admin-password", initializer=_give_way)

    def close(self) -> None:
        """Checks nothing any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def check(self, password: str, operator: Operator) -> None:
        """PasswordInvalid: it is wrong, or no hash is configured. Overloaded: it was not checked; try again later."""
        if operator.is_granted:
            return
        if not self._hash:
            raise PasswordInvalid(_NO_PASSWORD)
        address = host_of(operator.peer)
        guesser = self._guessers.setdefault(address, _Guesser(address, self._now_s()))
        try:
            # nobody can guess a random one, so nobody who knows it has to wait
            if not (is_random(self._hash) and self._is_right(password)) and not await self._check(guesser, password):
                self._was_wrong(guesser, operator.who)
                raise PasswordInvalid("the admin password is wrong")
            self._was_right(guesser)
        finally:
            self._clean_up(guesser)

    async def _check(self, guesser: _Guesser, password: str) -> bool:
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

    def _refuse_in_pause(self, guesser: _Guesser) -> None:
        left_s = guesser.paused_until_s - self._now_s()
        if left_s > 0:
            guesser.refused += 1
            text = (
                f"{guesser.wrong} wrong admin passwords came from {guesser.address}; the next one is checked in "
                f"{left_s:.1f} s, or at once from another address"
            )
            raise Overloaded.by("password_pauses", text, retry_after_ms=int(left_s * 1000) + 1)

    def _was_wrong(self, guesser: _Guesser, who: str) -> None:
        now_s = self._now_s()
        guesser.wrong = 1 if now_s - guesser.wrong_at_s > FORGET_S else guesser.wrong + 1
        guesser.wrong_at_s = now_s
        self._guessers[guesser.address] = guesser
        self._guessers.move_to_end(guesser.address)
        beyond = guesser.wrong - FREE_TRIES
        if beyond >= 0:
            guesser.paused_until_s = now_s + exponential_backoff_s(beyond + 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
        if guesser.said_at_s is None or now_s - guesser.said_at_s >= SAY_EVERY_S:
            guesser.said_at_s = now_s
            facts = {"address": guesser.address, "wrong": guesser.wrong, "refused": guesser.refused, "source": who}
            _log.warning("password_wrong", **facts)
            guesser.refused = 0
        if _is_told(guesser.wrong):
            self._audit.refused(guesser.address, "wrong_password", "", f"{guesser.wrong} of them, sent as {who!r}")

    def _was_right(self, guesser: _Guesser) -> None:
        if guesser.wrong >= FREE_TRIES:
            _log.warning("password_right", address=guesser.address, after_wrong=guesser.wrong, refused=guesser.refused)
        guesser.wrong = guesser.refused = 0

    def _clean_up(self, guesser: _Guesser) -> None:
        """Keep those who guess: the last of them, and up to the bound."""
        if not guesser.wrong and not guesser.waiting:
            self._guessers.pop(guesser.address, None)
        forgotten_s = self._now_s() - FORGET_S
        while self._guessers:
            oldest = next(iter(self._guessers.values()))
            if len(self._guessers) <= MAX_ADDRESSES and oldest.wrong_at_s >= forgotten_s:
                break
            self._guessers.popitem(last=False)


def _is_told(wrong: int) -> bool:
    """The audit shows the first pause, and of each doubling from there.

    >>> [wrong for wrong in range(1, 100) if _is_told(wrong)]
    [5, 10, 20, 40, 80]
    """
    times, rest = divmod(wrong, FREE_TRIES)
    return rest == 0 and times > 0 and times & (times - 1) == 0


def _give_way() -> None:
    """The thread of the checks lets every other thread of the machine go first."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
