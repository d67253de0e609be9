"""The recording of a client's calls: a transport around the one that carries them.

Each call is one begin and one end, however often it was sent; what its copies may have done stands in the end.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pinlater.client.dispatcher import CallSpec, CallTransport, Failure, FirstAttempt, TransportDecorator
from pinlater.client.retry import may_be_done
from pinlater.errors import PinLaterError
from pinlater.history.recorder import Recorder
from pinlater.log_guard import GuardedLogger

_log = GuardedLogger("pinlater.client")

_NOT_ENCODABLE = (TypeError, ValueError, AttributeError)


class RecordedCalls(TransportDecorator):
    """A CallTransport whose calls are a history."""

    def __init__(self, calls: CallTransport, recorder: Recorder) -> None:
        super().__init__(calls)
        self._recorder = recorder
        self._begun: dict[FirstAttempt, int] = {}
        """The numbers of calls whose first attempts have failed."""

    async def call(self, call: CallSpec, first: FirstAttempt | None = None) -> Any:
        """What the method returns. The typed errors of `pinlater.errors`."""
        number = None if first is None else self._begun.pop(first, None)
        if number is None:
            try:
                number = self._recorder.begin(call.method.name, call.args)
            except _NOT_ENCODABLE as error:
                success = await self._calls.call(call, first)  # mostly this says what is wrong, and nothing is sent
                _say_unrecorded(call, error)
                return success
        copies = _Copies(call.revise)
        call.revise = copies.failed
        try:
            success = await self._calls.call(call, first)
        except BaseException as error:
            self._recorder.fail(number, error, resent=copies.may_count)
            raise
        self._recorder.end(number, call.method.name, success, resent=copies.may_count)
        return success

    def begin(self, call: CallSpec, on_end: Callable[[FirstAttempt], None]) -> bool:
        """It is written down once it is known to be sent, as of the moment before."""
        at_ms, number = self._recorder.now_ms(), None

        def ended(first: FirstAttempt) -> None:
            if number is not None and first.error is None:
                self._recorder.end(number, call.method.name, first.success)
            elif number is not None:
                self._begun[first] = number
            on_end(first)

        if not self._calls.begin(call, ended):
            return False
        try:
            number = self._recorder.begin(call.method.name, call.args, at_ms)
        except _NOT_ENCODABLE as error:
            _say_unrecorded(call, error)
        return True


def _say_unrecorded(call: CallSpec, error: Exception) -> None:
    _log.error("a %s is not in the history, which so cannot be judged: %s", call.method.name, error)


class _Copies:
    """The attempts of one call that failed and were followed by another."""

    def __init__(self, revise: Callable[[Failure], None] | None) -> None:
        self._revise = revise
        self.may_count = False

    def failed(self, error: Failure) -> None:
        if may_be_done(error) or (isinstance(error, PinLaterError) and bool(error.acks_applied)):
            self.may_count = True
        if self._revise is not None:
            self._revise(error)
