"""One call of the interface: its name, what it needs, and how it becomes bytes and a call of an Api."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, Generic, TypeVar

from pinlater.model import ANY_QUEUE, EVERY_QUEUE, AccessAction, RequestContext
from pinlater.wire.interface import SIGNATURES, Signature
from pinlater.wire.struct_map import CallShape

R = TypeVar("R")


def as_it_is(value: Any) -> Any:
    return value


class Idempotency(Enum):
    """The effect of sending a call twice; decides which calls a client may send again by itself."""

    READ = "changes nothing, and answers quickly"
    SCAN = "changes nothing, and may take long by itself: one attempt has all the time there is"
    REPEAT = "changes something, but twice is as good as once"
    ONCE = "twice is not as good as once: sent again only where the failed call surely changed nothing"


class Access(Enum):
    """The credential that a caller has to show where no rule and no role allows the call."""

    ANYONE = "nothing"
    ADMIN_PASSWORD = "the admin password, in the argument of that name"


NOTHING: tuple[AccessAction, ...] = ()
"""The actions of a call that everybody may make."""


def named_queue(args: Any) -> Collection[str]:
    """Of a call whose arguments have one queue."""
    return (args.request.queue,)


def every_queue(_args: Any) -> Collection[str]:
    """Of a call about the cluster."""
    return (EVERY_QUEUE,)


def any_queue(_args: Any) -> Collection[str]:
    """Of a call that answers with what the caller may read."""
    return (ANY_QUEUE,)


def queues_of_flow(args: Any) -> Collection[str]:
    """Of a call about a flow: the service knows its queues, and asks for the right on those of all stages."""
    return any_queue(args)


def queue_of_stage(args: Any) -> Collection[str]:
    """As `queues_of_flow`, on the queue of a stage that is named."""
    return any_queue(args)


def queue_of_item(args: Any) -> Collection[str]:
    """As `queues_of_flow`, on the queue of the stage that an item is in."""
    return any_queue(args)


def queues_or_any(args: Any) -> Collection[str]:
    """Of a call that may name queues, and otherwise answers with what the caller may read."""
    return args.request.names or (ANY_QUEUE,)


def queues_or_every(args: Any) -> Collection[str]:
    """Of a call that may name queues."""
    return args.request.queues or (EVERY_QUEUE,)


def queue_or_every(args: Any) -> Collection[str]:
    """Of a call that may name one queue."""
    return (args.request.queue or EVERY_QUEUE,)


@dataclass(frozen=True, eq=False)
class Method(Generic[R]):
    """One call, of which a client returns an R. `name` is the wire's, `call` the method of `Api`.

    How its arguments and its answer are copied from and to the structs of the interface follows from the signature of
    `call` (struct_map.py), but for what is said here by hand.
    """

    name: str
    call: Callable[..., Awaitable[R]]
    idempotency: Idempotency
    """That of the call with the arguments for which it is least safe."""

    actions: tuple[AccessAction, ...]
    """What it does: who may do one of them may make the call."""

    queues: Callable[[Any], Collection[str]]
    """The queues that its arguments name; EVERY_QUEUE where it concerns the cluster."""

    groups: Callable[[Any], Iterable[str]] | None = None
    """The groups that its arguments name, "" for jobs without one: a role may say which. None: it names none."""

    access: Access = Access.ANYONE
    idempotency_of: Callable[..., Idempotency] | None = None
    """By the arguments of the call in order, where these decide."""

    actions_of: Callable[[Any], tuple[AccessAction, ...]] | None = None
    """What it does by its arguments, where these decide; `actions` is then what it does mostly."""

    shows_bodies: Callable[[Any], bool] | None = None
    """Whether the answer to such arguments tells of bodies or results; None: never. What only workers and producers
    call does not count as a look.
    """

    answer_size: Callable[[Any], tuple[int, bool]] | None = None
    """How many jobs the answer to a request may hold, and whether with bodies: room is reserved before it begins."""

    pipelined: bool = False
    """So short that a client sends several over one connection where it has no other."""

    fallback_method: str = ""
    """The method that a server which does not know this one has instead, with the same arguments."""

    serve_by_hand: Callable[[Any, Any, RequestContext], Awaitable[Any]] | None = None
    answer_by_hand: Callable[..., Any] | None = None
    request_by_hand: Callable[..., Any] | None = None
    result_by_hand: Callable[[Any], R] | None = None
    signature: Signature = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "signature", SIGNATURES[self.name])

    @property
    def api_name(self) -> str:
        return self.call.__name__

    @cached_property
    def _shape(self) -> CallShape:
        return CallShape(self.call, self.signature.args, self.signature.result)

    @cached_property
    def serve(self) -> Callable[[Any, Any, RequestContext], Awaitable[Any]]:
        """Makes the call of an Api (or of what has its methods) from decoded arguments. RequestInvalid."""
        return self.serve_by_hand or self._shape.serve()

    @cached_property
    def answer(self) -> Callable[..., Any]:
        """Makes what the codec encodes of what an Api returned; None for a void method. That of a dequeue also takes
        `awaits_receipt`.
        """
        return self.answer_by_hand or self._shape.answer() or as_it_is

    @cached_property
    def request(self) -> Callable[..., Any]:
        """Makes the struct `request`, or where the call has none its arguments, from those of the call in order."""
        return self.request_by_hand or self._shape.write()

    @cached_property
    def result(self) -> Callable[[Any], R]:
        """Makes what a client returns of a decoded answer."""
        return self.result_by_hand or self._shape.result() or as_it_is

    @cached_property
    def has_request(self) -> bool:
        return self._shape.has_request

    def password(self, args: Any) -> str:
        """The admin password in the arguments; "" for none."""
        return (args.request if self.has_request else args).password or ""

    @property
    def changes(self) -> bool:
        """Whether it changes anything."""
        return self.idempotency in (Idempotency.REPEAT, Idempotency.ONCE)

    def arguments(self, context: RequestContext, *values: Any) -> Any:
        """The arguments as they are encoded, from those of the call in order."""
        if self.has_request:
            args = self.signature.args.cls()
            args.request = self.request(*values)
        else:
            args = self.request(*values)
        args.context = context
        return args

    def idempotency_with(self, *values: Any) -> Idempotency:
        """The idempotency of the call with these arguments."""
        return self.idempotency if self.idempotency_of is None else self.idempotency_of(*values)
