"""The admin password: its check, and the pauses and answers for those who guess.

The first few wrong passwords of an address cost nothing, since people mistype. After each further one nothing is
checked for that address during a pause, which grows. Checks run in one thread of their own, one address after the
other, so that guesses delay neither other calls nor a right password from another address.

The right password is known by a quick digest once it was checked, so that it costs no turn in that thread any more.
Where it came from an address before, a pause of that address does not shut it out: up to a bound, what comes is
compared with that digest.
"""

from __future__ import annotations

import asyncio
import hmac
import math
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

from pinlater.access.guesses import FORGET_S, MAX_ADDRESSES, MAX_WAITING, MAX_WAITING_EACH, Guesser, Guessers
from pinlater.data_folder.password import is_random, verify_password
from pinlater.errors import Overloaded, PasswordInvalid
from pinlater.service.audit import Audit

_MAX_CHARS = 1_024
SHARE_EVERY_S = 60.0
"""The other processes of a server learn of an address once in this time."""

COMPARED_IN_PAUSE = 100
"""Wrong passwords of an address that are compared in one of its pauses; behind them the right one is not either."""

_NICENESS = 5
_NO_PASSWORD = (
    "this server has no admin password, so what needs one is refused; start it with --admin-password-hash-file FILE, "
    "with what `pinlater admin hash-password` prints (a server makes a password by itself only where it listens on a "
    "loopback address and keeps all jobs in SQLite)"
)


class Operator(NamedTuple):
    """Who asks for a change: what the caller calls itself, its address as sockets have it, whether a rule or a role
    allows the call, so that no password is needed, whose is what comes by it ("": nobody's), and the identity that it
    proved, "" for none.
    """

    who: str
    peer: object = None
    is_granted: bool = False
    owner: str = ""
    identity: str = ""


class ProvenPassword:
    """The right password of one hash, once it was checked, and the addresses from which it came within an hour.

    Only who knows the password adds an address, so no guesser pushes one out.
    """

    def __init__(self, password_hash: str, monotonic: Callable[[], float]) -> None:
        """`password_hash` is the key of the digests, which mean something only to servers that have the same hash."""
        self._now_s = monotonic
        self._key = password_hash.encode()
        self._digest: bytes | None = None
        self._came_at_s: OrderedDict[str, float] = OrderedDict()

    @property
    def is_known(self) -> bool:
        return self._digest is not None

    def is_right(self, password: str) -> bool:
        """Whether it is that one; False where none is known."""
        if self._digest is None or len(password) > _MAX_CHARS:  # a digest of megabytes would hold up other calls
            return False
        return hmac.compare_digest(self._digest, self._digest_of(password))

    def came(self, password: str, address: str) -> dict[str, str] | None:
        """It was right: what the other processes of the server are to learn; None: they know."""
        before_s = self._came_at_s.get(address, -math.inf)
        digest = self._digest_of(password)
        if self._now_s() - before_s < SHARE_EVERY_S:
            return None
        self._note(digest, address)
        return {"digest": digest.hex(), "address": address}

    def learn(self, news: dict[str, str]) -> None:
        """Take over the digest of a right password, and the address it came from, of another process."""
        self._note(bytes.fromhex(news["digest"]), news["address"])

    def _note(self, digest: bytes, address: str) -> None:
        self._digest = digest
        self._came_at_s[address] = self._now_s()
        self._came_at_s.move_to_end(address)
        if len(self._came_at_s) > MAX_ADDRESSES:
            self._came_at_s.popitem(last=False)

    def has_come_from(self, address: str) -> bool:
        came_at_s = self._came_at_s.get(address)
        return came_at_s is not None and self._now_s() - came_at_s <= FORGET_S

    def _digest_of(self, password: str) -> bytes:
        return hmac.digest(self._key, password.encode("utf-8", "surrogatepass"), "sha256")


class AdminPassword:
    """Checks passwords against the one hash. A caller without an address shares one with all others like it."""

    def __init__(self, password_hash: str, audit: Audit, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._hash = password_hash
        self._guessers = Guessers("password", audit.refused, monotonic)
        self._proven = ProvenPassword(password_hash, monotonic)
        self.share: Callable[[dict[str, str]], None] = lambda _: None
        """Passes on to the other processes of the server what they are to learn."""
        self._turns = asyncio.Semaphore(1)
        self._waiting = 0
        self._thread = ThreadPoolExecutor(1, "admin-password", initializer=_give_way)

    def close(self) -> None:
        """Checks nothing any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def learn(self, news: dict[str, str]) -> None:
        """Take over what another process of the server shared."""
        self._proven.learn(news)

    async def check(self, password: str, operator: Operator) -> None:
        """PasswordInvalid: it is wrong, or no hash is configured. Overloaded: it was not checked; try again later.

        Who may do this without one needs to send none; one that is sent all the same has to be right, so that nobody
        takes it for tried.
        """
        if operator.is_granted and not (password and self._hash):
            return
        if not self._hash:
            raise PasswordInvalid(_NO_PASSWORD)
        guesser = self._guessers.of(operator.peer, operator.identity)
        is_neighbour = self._proven.has_come_from(guesser.address)
        try:
            if is_neighbour and self._is_right_in_pause(guesser, password):
                self._guessers.was_right(guesser, is_neighbour=True)
                return
            # nobody can guess a random one, so nobody who knows it has to wait
            if not (is_random(self._hash) and self._is_right(password)) and not await self._check(guesser, password):
                self._guessers.was_wrong(guesser, operator.who)
                needless = "; this caller needs none for it: send no password" if operator.is_granted else ""
                raise PasswordInvalid(f"the admin password is wrong{needless}")
            if (news := self._proven.came(password, guesser.address)) is not None:
                self.share(news)
            self._guessers.was_right(guesser, is_neighbour=is_neighbour)
        finally:
            self._guessers.done(guesser)

    def _is_right_in_pause(self, guesser: Guesser, password: str) -> bool:
        """There is a pause, which goes on, and the password is right; up to a bound, it is compared."""
        if self._left_s(guesser) <= 0 or guesser.compared >= COMPARED_IN_PAUSE:
            return False
        if self._proven.is_right(password):
            return True
        guesser.compared += 1
        return False

    async def _check(self, guesser: Guesser, password: str) -> bool:
        """Whether the password is right. Overloaded where too many wait to be checked.

        Calls take turns: first those of one address, then the addresses, each of which waits there once. Where the
        right password is known, the answer comes at once.
        """
        self._refuse_in_pause(guesser)
        if self._proven.is_known:
            return self._proven.is_right(password)
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

    def _left_s(self, guesser: Guesser) -> float:
        """The seconds that are left of this address's pause; 0 or less: it has none."""
        return guesser.paused_until_s - self._guessers.now_s()

    def _refuse_in_pause(self, guesser: Guesser) -> None:
        left_s = self._left_s(guesser)
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
