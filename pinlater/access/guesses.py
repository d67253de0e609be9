"""Guesses: wrong passwords and tokens by whom they came from, and the pauses that they lead to.

Who has proved an identity guesses under that one, so its neighbours are not taken for it; anybody else under an
address.

The first few of an address cost nothing, since people mistype. After each further one comes a pause, which grows. The
log has one line a minute for each address, the audit one for each doubling.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import structlog

from pinlater.background_tasks import exponential_backoff_s
from pinlater.errors import Overloaded
from pinlater.model.connection_ref import host_of

_log = structlog.get_logger("pinlater.access")

FREE_TRIES = 5
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0
FORGET_S = 3_600.0
"""An address of which nothing wrong came for so long begins anew."""

MAX_ADDRESSES = 10_000
MAX_WAITING, MAX_WAITING_EACH = 64, 8
"""Callers that wait, in all and of one address; one more is refused."""

MAX_HELD_BYTES = 64 * 1024
"""The largest call that is kept while its answer is held back."""

SAY_EVERY_S = 60.0
"""The log has one line in this time for each address."""

Refused = Callable[[str, str, str, str], None]
"""Told who was refused which call, on what and why."""


@dataclass(slots=True)
class Guesser:
    """An address, or the identity that a caller proved, and what came from it: `wrong` in all, `refused` unchecked
    since the last line, `compared` in this pause without being right; its last lines of the log are of `logged_at_s`
    and `right_logged_at_s`.
    """

    address: str
    wrong_at_s: float
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0
    wrong: int = 0
    paused_until_s: float = 0.0
    compared: int = 0
    refused: int = 0
    logged_at_s: float | None = None
    right_logged_at_s: float | None = None


class Guessers:
    """Those who guess one kind of secret. A caller without an address shares one with all others like it."""

    def __init__(self, secret: str, refused: Refused, monotonic: Callable[[], float] = time.monotonic) -> None:
        """`secret` is what is guessed, one word; `refused` hears of it now and then."""
        self.now_s = monotonic
        self._secret = secret
        self._refused = refused
        self._guessers: OrderedDict[str, Guesser] = OrderedDict()
        """The one whose last guess is the oldest comes first."""

    def __len__(self) -> int:
        return len(self._guessers)

    def of(self, peer: object, identity: str = "") -> Guesser:
        """The one of an identity, or else at the address of a caller; to be let go by `done`."""
        address = identity or host_of(peer)
        return self._guessers.setdefault(address, Guesser(address, self.now_s()))

    def was_wrong(self, guesser: Guesser, who: str) -> None:
        """`who` is what the caller calls itself."""
        now_s = self.now_s()
        guesser.wrong = 1 if now_s - guesser.wrong_at_s > FORGET_S else guesser.wrong + 1
        guesser.wrong_at_s = now_s
        self._guessers[guesser.address] = guesser
        self._guessers.move_to_end(guesser.address)
        beyond = guesser.wrong - FREE_TRIES
        if beyond >= 0:
            guesser.paused_until_s = now_s + exponential_backoff_s(beyond + 1, FIRST_PAUSE_S, LONGEST_PAUSE_S)
            guesser.compared = 0
        if guesser.logged_at_s is None or now_s - guesser.logged_at_s >= SAY_EVERY_S:
            guesser.logged_at_s = now_s
            facts = {"address": guesser.address, "wrong": guesser.wrong, "refused": guesser.refused, "source": who}
            _log.warning(f"{self._secret}_wrong", **facts)
            guesser.refused = 0
        if _is_audited(guesser.wrong):
            detail = f"{guesser.wrong} of them, sent as {who!r}"
            self._refused(guesser.address, f"wrong_{self._secret}", "", detail)

    def was_right(self, guesser: Guesser, *, is_neighbour: bool = False) -> None:
        """`is_neighbour`: it may be of another one than who was wrong, whose guesses go on to count."""
        now_s = self.now_s()
        is_logged = (
            is_neighbour and guesser.right_logged_at_s is not None and now_s - guesser.right_logged_at_s < SAY_EVERY_S
        )
        if guesser.wrong >= FREE_TRIES and not is_logged:
            guesser.right_logged_at_s = now_s
            facts = {"address": guesser.address, "after_wrong": guesser.wrong, "refused": guesser.refused}
            _log.warning(f"{self._secret}_right", **facts)
        if not is_neighbour:
            guesser.wrong = guesser.refused = 0

    def done(self, guesser: Guesser) -> None:
        """Keep those who guess: the last of them, and up to the bound."""
        if not guesser.wrong and not guesser.waiting:
            self._guessers.pop(guesser.address, None)
        forgotten_s = self.now_s() - FORGET_S
        while self._guessers:
            oldest = next(iter(self._guessers.values()))
            if len(self._guessers) <= MAX_ADDRESSES and oldest.wrong_at_s >= forgotten_s:
                break
            self._guessers.popitem(last=False)


class TokenGuesses:
    """Those who show wrong tokens: their answers are held back, during pauses that grow. A right token is found by its
    hash at once, so nobody who has one waits, also beside somebody who guesses.
    """

    def __init__(
        self,
        refused: Refused,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._guessers = Guessers("token", refused, monotonic)
        self._sleep = sleep
        self._waiting = 0
        self._pauses: set[asyncio.Future[None]] = set()
        self._is_draining = False

    def start_draining(self) -> None:
        """A server that ends holds back no answers any more."""
        self._is_draining = True
        for pause in self._pauses:
            pause.cancel()

    async def hold_back(self, peer: object, who: str, size: int = 0) -> None:
        """Returns when the answer to a wrong token may leave. Overloaded: too many wait already, or the call of `size`
        bytes is too large to be kept meanwhile.
        """
        guesser = self._guessers.of(peer)
        if guesser.waiting >= MAX_WAITING_EACH or self._waiting >= MAX_WAITING:
            guesser.refused += 1
            raise Overloaded.by("waiting_tokens", "too many wrong tokens came from there", retry_after_ms=1_000)
        guesser.waiting += 1
        self._waiting += 1
        try:
            self._guessers.was_wrong(guesser, who)
            left_s = guesser.paused_until_s - self._guessers.now_s()
            if left_s > 0 and not self._is_draining:
                if size > MAX_HELD_BYTES:
                    text = "a wrong token came with a large call, after others from there: ask for less, or later"
                    raise Overloaded.by("waiting_tokens", text, retry_after_ms=int(left_s * 1_000) + 1)
                await self._pause(left_s)
        finally:
            guesser.waiting -= 1
            self._waiting -= 1
            self._guessers.done(guesser)

    def note(self, peer: object, who: str) -> None:
        """Count a wrong token without a pause: that of a gateway's caller, whom the gateway itself keeps waiting."""
        guesser = self._guessers.of(peer)
        self._guessers.was_wrong(guesser, who)
        self._guessers.done(guesser)

    async def _pause(self, seconds: float) -> None:
        pause = asyncio.ensure_future(self._sleep(seconds))
        self._pauses.add(pause)
        try:
            await asyncio.wait([pause])
        finally:
            pause.cancel()
            self._pauses.discard(pause)


def _is_audited(wrong: int) -> bool:
    """The audit shows the first pause, and of each doubling from there.

    >>> [wrong for wrong in range(1, 100) if _is_audited(wrong)]
    [5, 10, 20, 40, 80]
    """
    times, rest = divmod(wrong, FREE_TRIES)
    return rest == 0 and times > 0 and times & (times - 1) == 0
