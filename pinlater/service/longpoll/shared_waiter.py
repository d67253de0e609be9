"""A dequeue that waits for several queues: one waiter, in the WaitQueue of each, answered once.

It is in one claim at a time, so that it never gets more than it may. Pollers that pass it over meanwhile remember it,
and are told when it is free again. A queue that cannot be served is set aside, with the reason, until something
changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import ClassVar

from pinlater.backends.base import ClaimRequest
from pinlater.errors import PinLaterError
from pinlater.service.longpoll.poller_state import Poller
from pinlater.service.longpoll.wait_queue import Waiter, fresh


class SharedWaiter(Waiter):
    """`request` has what is the same for all queues; `claim_for` makes a new claim of one of them. `pollers`: where it
    waits; `errors`: of the queues set aside, why.
    """

    __slots__ = ("_aside", "_claim_for", "errors", "pollers")
    is_shared: ClassVar[bool] = True

    def __init__(
        self, number: int, request: ClaimRequest, claim_for: Callable[[str], ClaimRequest], aside: SetAside
    ) -> None:
        super().__init__(number, request)
        self._claim_for = claim_for
        self.pollers: dict[str, Poller] = {}
        self.errors: dict[str, PinLaterError] = {}
        self._aside = aside

    def claim_for(self, queue: str) -> ClaimRequest:
        return self._claim_for(queue)

    def join(self, queue: str, poller: Poller) -> None:
        self.pollers[queue] = poller
        poller.waiters.join(self)

    def set_aside(self, queue: str, error: PinLaterError) -> None:
        """The queue cannot be served. With the last one the wait is over."""
        self.errors[queue] = fresh(error)
        self._aside.add(queue, self)
        poller = self.pollers.pop(queue, None)
        if poller is not None:
            poller.waiters.leave(self)
            if not self.pollers:
                self.end()

    def end(self) -> None:
        """An empty answer, now or when the claim that is under way returns."""
        self.is_over = True
        if not self.in_claim and not self.answer.done():
            self.answer.set_result([])

    def free(self) -> None:
        """Its claim brought nothing: other queues may claim for it."""
        self.in_claim = False
        if self.is_over:
            self.end()
            return
        for poller in list(self.pollers.values()):
            if poller.waiters.has_passed_over:
                poller.serve_passed_over()
                if self.in_claim:
                    return  # this one has found it; those after it will be told when it is free again

    def leave(self) -> None:
        """It waits for none any more."""
        for poller in self.pollers.values():
            poller.waiters.entries.pop(self, None)
        self._aside.leave(self, self.errors)


class SetAside:
    """The queues that cannot be served now, and who would wait for them."""

    def __init__(self) -> None:
        self._waiters: dict[str, dict[SharedWaiter, None]] = {}

    def add(self, queue: str, waiter: SharedWaiter) -> None:
        self._waiters.setdefault(queue, {})[waiter] = None

    def leave(self, waiter: SharedWaiter, queues: Iterable[str]) -> None:
        for queue in queues:
            waiters = self._waiters.get(queue)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del self._waiters[queue]

    def queues(self, changed: str) -> list[str]:
        """The queues, of those with waiters set aside, that a change of this queue may be about; "": all."""
        return list(self._waiters) if changed == "" else [changed] if changed in self._waiters else []

    def take(self, queue: str) -> list[SharedWaiter]:
        """The waiters that were set aside for this queue; they are so no longer."""
        return list(self._waiters.pop(queue, ()))
