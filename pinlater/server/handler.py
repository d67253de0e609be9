"""One message in, one answer out, whatever happens in between."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol

import structlog

from pinlater.api import ServedApi
from pinlater.errors import Draining, Forbidden, LimitReached, Overloaded, PinLaterError, UnknownError
from pinlater.listener import RateLimitedLog, peer_text
from pinlater.metrics import Histogram, Metrics
from pinlater.model import ConnectionRef, DequeuedFromQueues, DequeuedJob, RequestContext
from pinlater.server.limits import ServerLimits
from pinlater.wire.codec import (
    BadCall,
    CallReader,
    RefusedCall,
    WireCall,
    encode_application_exception,
    encode_reply,
)
from pinlater.wire.convert import emptied_to_wire
from pinlater.wire.faults import exception_from_error
from pinlater.wire.flow_methods import GET_FLOW
from pinlater.wire.message import ApplicationErrorKind, Header, read_header
from pinlater.wire.methods import BULK_METHODS, DEQUEUE, DEQUEUE_FROM_QUEUES, LOOKUP, METHODS, Method

if TYPE_CHECKING:
    from pinlater.access.fair_use import CallUse
    from pinlater.access.gate import CallGate

_log = structlog.get_logger("pinlater.server")
_INFO_BYTES = 21_000
"""Of one job in an answer without its body: a status of 5,000 characters takes most of it."""

_LARGE_BYTES = 1024 * 1024

_IDLE_MS = 1_000
"""Of the three seconds without a sign of life after which a connection that is kept alive breaks with a time-out, so
much counts as grace."""


class Channel(Protocol):
    """The connection of a call: how its messages are read, and who is at its other end."""

    reader: CallReader
    ref: ConnectionRef


class CallInFlight(Protocol):
    """A call while its answer is made: `InflightCall`, which starts that and so cannot be known here."""

    @property
    def channel(self) -> Channel: ...

    size: int
    jobs: Sequence[DequeuedJob]
    needs_receipt: bool
    is_long_poll: bool
    is_parked: bool
    caller_gone: bool

    async def wait_for_room(self, size: int) -> None: ...

    def take_room(self, size: int) -> bool: ...


class Handler:
    """Carries out calls. Every error becomes an answer: the interface's exception, else Thrift's own."""

    def __init__(
        self,
        service: ServedApi,
        limits: ServerLimits,
        counters: Counter[str],
        log: RateLimitedLog,
        metrics: Metrics | None = None,
        gate: CallGate | None = None,
    ) -> None:
        """Without a `gate` everybody may do all that needs no admin password."""
        self._service = service
        self._limits = limits
        self._max_answer_bytes = limits.max_frame_bytes
        self._counters = counters
        self._callers_log = log
        self._metrics = metrics or Metrics()
        self._call_seconds: dict[str, Histogram] = {}
        self._gate = gate
        self.refuse_with: PinLaterError | None = None

    @property
    def has_rules(self) -> bool:
        """Whether callers are told apart, so that one may not have what another needs."""
        return self._gate is not None and self._gate.has_rules

    def start_draining(self) -> None:
        """The server ends: no answer is held back any more."""
        if self._gate is not None:
            self._gate.start_draining()

    async def reply(self, message: bytes, call: CallInFlight) -> bytes:
        """The answer to one message, unframed. WireError where there is none: not even a header can be read."""
        channel = call.channel
        try:
            name, seqid, args, protocol = decoded = channel.reader.read(message)
        except BadCall as error:
            return self.refuse_malformed(error, channel.ref.peer)
        except RefusedCall as refused:
            return self._refuse_call(refused.call, refused.error)
        began = perf_counter()
        use = None
        try:
            if self.refuse_with is not None:
                raise _refusal(name, self.refuse_with)
            sent = args.context
            context = RequestContext(sent.source, sent.request_id or "", channel.ref)
            if sent.shares_connection:
                context.shares_connection = True
            method = METHODS[name]
            gate = self._gate
            if gate is not None and (gate.has_rules or sent.token or channel.ref.certificate_names):
                try:
                    use = await self._admit(gate, method, args, context, call)
                except Forbidden:
                    began = perf_counter()  # the answer may have been held back, which says nothing of the service
                    raise
            if method is DEQUEUE or method is DEQUEUE_FROM_QUEUES:
                success = await self._dequeue(method, args, context, call)
            elif (method is LOOKUP or method is GET_FLOW) and args.request.wait_ms:
                success = await self._wait(method, args, context, call)
            else:
                if method.answer_size is not None:
                    await self._reserve(call, *method.answer_size(args.request))
                success = method.answer(await method.serve(self._service, args, context))
            answer = encode_reply(name, seqid, success, None, protocol)
            if len(answer) > self._max_answer_bytes:
                return await self._too_long(decoded, len(answer), call)
            return answer
        except PinLaterError as error:
            self._count_error(decoded, error)
            if isinstance(error, (LimitReached, Overloaded)) and error.limit:
                self._counters[error.limit] += 1
            return _error_reply(decoded, _bare(error))
        except Exception as error:
            self._metrics.add(1, "call_errors", name, type(error).__name__)
            return await self._unexpected(decoded, error, call)
        finally:
            if use is not None:
                use.end()
            if not call.is_long_poll:
                seconds = self._call_seconds.get(name)
                if seconds is None:
                    seconds = self._call_seconds[name] = self._metrics.histogram("call_seconds", name)
                seconds.observe(perf_counter() - began)

    async def _admit(
        self, gate: CallGate, method: Method[Any], args: Any, context: RequestContext, call: CallInFlight
    ) -> CallUse | None:
        """Lets a call in when it has its turn, or raises why not."""
        is_dequeue = method is DEQUEUE or method is DEQUEUE_FROM_QUEUES
        try:
            await gate.admit(method, args, context, call.size)
            may_wait = is_dequeue or method is LOOKUP or method is GET_FLOW
            use = await gate.begin(context, call.size, bool(may_wait and args.request.wait_ms))
            if use is not None and method in BULK_METHODS:
                await use.wait_for_bulk()
            return use
        except PinLaterError as error:
            if is_dequeue:
                error.acks_applied = False
            raise

    async def _dequeue(self, method: Method[Any], args: Any, context: RequestContext, call: CallInFlight) -> Any:
        """Jobs for a caller that is gone are requeued, and the answer is empty."""
        request = args.request
        if request.limit > 1 or method is not DEQUEUE or request.prefetch:
            context.take_room = call.take_room
        call.is_parked = call.is_long_poll = (request.wait_ms or 0) > 0
        jobs: Sequence[DequeuedJob] = () if method is DEQUEUE else DequeuedFromQueues()
        try:
            jobs = await method.serve(self._service, args, context)
        except asyncio.CancelledError:
            if not call.caller_gone:
                raise
        finally:
            call.is_parked = False
        if jobs and (method is not DEQUEUE or not request.dry_run):
            if call.caller_gone:
                await self._service.requeue(jobs)
                return emptied_to_wire(jobs)
            try:
                self._check_again(method, args, context)
            except Forbidden as error:
                error.acks_applied = True
                await self._service.requeue(jobs)
                raise
            call.jobs = jobs
            call.needs_receipt = bool(request.confirms_receipt)
        return method.answer(jobs, awaits_receipt=call.needs_receipt)

    async def _wait(self, method: Method[Any], args: Any, context: RequestContext, call: CallInFlight) -> Any:
        """A call that waits for an end, until its caller is gone. No room is kept meanwhile."""
        call.is_parked = call.is_long_poll = True
        try:
            found = await method.serve(self._service, args, context)
        except asyncio.CancelledError:
            if not call.caller_gone:
                raise
            return None
        finally:
            call.is_parked = False
        self._check_again(method, args, context)
        return method.answer(found)

    def _check_again(self, method: Method[Any], args: Any, context: RequestContext) -> None:
        """Of a call that may have waited. Forbidden: it would not be let in any more."""
        if context.caller is not None and self._gate is not None:
            self._gate.check_again(method, args, context)

    async def _reserve(self, call: CallInFlight, jobs: int, with_bodies: bool) -> None:
        """Before a call that may bring much begins: room for its answer, if all jobs are as large as can be."""
        size = jobs * (_INFO_BYTES + (self._limits.max_body_bytes if with_bodies else 0))
        if jobs > 1 and size > _LARGE_BYTES:
            await call.wait_for_room(min(size, self._limits.max_frame_bytes))

    def _refuse_call(self, call: WireCall, error: PinLaterError) -> bytes:
        """The answer to a call that was read and is not begun."""
        self._count_error(call, error)
        return _error_reply(call, _refusal(call.name, error))

    def _count_error(self, call: WireCall, error: PinLaterError) -> None:
        self._metrics.add(1, "call_errors", call.name, error.reason)

    def refuse(self, message: bytes, error: PinLaterError) -> bytes:
        """The answer to a message that is not even decoded. WireError where its header cannot be read."""
        header = read_header(message)
        if header.name not in METHODS:
            kind = ApplicationErrorKind.UNKNOWN_METHOD
            return _application_reply(header, kind, f"there is no method {header.name[:80]!r}")
        exception = exception_from_error(_refusal(header.name, error))
        return encode_reply(header.name, header.seqid, exception=exception, protocol=header.protocol)

    async def truncate(self, reply: bytes, inflight: CallInFlight, error: PinLaterError) -> bytes:
        """The answer for which there is no room: without its jobs, or `error` where the call has changed nothing."""
        if inflight.jobs:
            empty = self.empty_reply(reply, inflight)
            await self.requeue(inflight)
            return empty
        method = METHODS[read_header(reply).name]
        return reply if method.answer_size is None else self.refuse(reply, error)

    def refuse_malformed(self, error: BadCall, peer: object) -> bytes:
        """Thrift's own exception, for an unknown method or a message that is not the contract."""
        if error.kind is ApplicationErrorKind.UNKNOWN_METHOD:
            self._counters["unknown_methods"] += 1
        else:
            self._counters["malformed_messages"] += 1
            self._callers_log.note(
                "malformed_message", peer=peer_text(peer), method=error.header.name, reason=error.message
            )
        return _application_reply(error.header, error.kind, error.message)

    async def _too_long(self, call: WireCall, length: int, inflight: CallInFlight) -> bytes:
        self._counters["answers_too_long"] += 1
        await self.requeue(inflight)
        error = UnknownError(
            f"the answer has {length} bytes; allowed: {self._max_answer_bytes}; ask for less at a time"
        )
        return _error_reply(call, error)

    async def _unexpected(self, call: WireCall, error: Exception, inflight: CallInFlight) -> bytes:
        self._counters["unexpected_errors"] += 1
        unknown = UnknownError.by_fault(f"{call.name} failed")
        _log.error("call_failed", method=call.name, fault=unknown.fault, exc_info=error)
        await self.requeue(inflight)
        return _error_reply(call, unknown)

    async def requeue(self, inflight: CallInFlight) -> None:
        """The claimed jobs of an answer that will not be sent; what fails here is left to the claim's time-out."""
        jobs, inflight.jobs = inflight.jobs, ()
        if jobs:
            try:
                await self._service.requeue(jobs)
            except Exception as error:
                _log.warning("give_back_failed", jobs=len(jobs), exc_info=error)

    def connection_lost(self, connection: ConnectionRef, error: Exception | None) -> None:
        """What becomes of the claims that are bound to a connection; they stay as they are where it did not break."""
        if not connection.is_broken:
            self._service.unbind(connection)
        elif isinstance(error, TimeoutError):
            self._service.disconnected(connection, idle_ms=_IDLE_MS)
        else:
            self._service.disconnected(connection)

    def empty_reply(self, reply: bytes, inflight: CallInFlight) -> bytes:
        """The answer to a dequeue whose jobs go back, without them."""
        header = read_header(reply)
        return encode_reply(header.name, header.seqid, emptied_to_wire(inflight.jobs), protocol=header.protocol)


def _refusal(name: str, error: PinLaterError) -> PinLaterError:
    """The error for a call that was not begun: then no riding acks were carried out."""
    if name != DEQUEUE.name and name != DEQUEUE_FROM_QUEUES.name:
        return error
    return type(error)(error.message, reason=error.reason, retry_after_ms=error.retry_after_ms, acks_applied=False)


def _bare(error: PinLaterError) -> PinLaterError:
    """Without its traceback, which keeps the call's bytes until the next garbage collection where it is in a cycle."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def draining_error() -> Draining:
    return Draining("this server is stopping; send the call to another one, or again later")


def _error_reply(call: WireCall, error: PinLaterError) -> bytes:
    return encode_reply(call.name, call.seqid, exception=exception_from_error(error), protocol=call.protocol)


def _application_reply(header: Header, kind: ApplicationErrorKind, text: str) -> bytes:
    return encode_application_exception(header.name, header.seqid, kind, text, header.protocol)
