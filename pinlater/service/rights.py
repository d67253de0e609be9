"""The rights of a caller, where only the service knows the queues that a call concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinlater.errors import Forbidden
from pinlater.model import ANONYMOUS, EVERY_QUEUE, HIDDEN_JOB, AccessAction, JobInfo, RequestContext
from pinlater.model.owner_bounds import owner_name
from pinlater.queues.settings import BREAKER
from pinlater.service.admin_password import Operator

READ = (AccessAction.READ,)
CONSUME = (AccessAction.CONSUME,)
ENQUEUE = (AccessAction.ENQUEUE,)
OPERATE = (AccessAction.OPERATE,)


def may(
    context: RequestContext | None, actions: tuple[AccessAction, ...], queue: str, shows_bodies: bool = False
) -> bool:
    """One of the actions is enough. Without a caller everything is allowed."""
    return context is None or context.caller is None or context.caller.may(actions, queue, shows_bodies)


def may_read(context: RequestContext | None, queue: str, shows_bodies: bool = False) -> bool:
    return may(context, READ, queue, shows_bodies)


def require_groups(
    context: RequestContext | None, actions: tuple[AccessAction, ...], queue: str, groups: Iterable[str]
) -> None:
    """Forbidden: a job that the call makes may not have one of these groups (`Caller.group_refusal`)."""
    caller = None if context is None else context.caller
    why = "" if caller is None else caller.group_refusal(actions, queue, groups)
    if why:
        raise Forbidden(f"{why}; ask for a role that allows it (`pinlater access show`)")


def hide_others(context: RequestContext | None, jobs: Iterable[JobInfo]) -> None:
    """Leave out of what is told of jobs those of queues that the caller may not read: which one each waits for."""
    if not may_read(context, EVERY_QUEUE):
        for job in jobs:
            if job.waits_for is not None and not may_read(context, job.waits_for.partition(":")[0]):
                job.waits_for = HIDDEN_JOB


def hide_log_lines(context: RequestContext | None, jobs: Mapping[str, JobInfo]) -> None:
    """Leave out of what is told of jobs, by descriptor, the log lines of those whose bodies the caller may not see."""
    for descriptor, job in jobs.items():
        if not may_read(context, descriptor.partition(":")[0], shows_bodies=True):
            job.log_lines = None


def named(context: RequestContext | None, source: str) -> str:
    """The caller's name in the audit: what it calls itself, behind the identity that it has proved. Who has proved none
    and calls itself like one that has, like the servers where rules are in force, or like a circuit breaker, is called
    ANONYMOUS.
    """
    caller = None if context is None else context.caller
    identity = ANONYMOUS if caller is None else caller.identity
    has_rules = caller is not None and caller.has_rules
    if identity == ANONYMOUS and not has_rules and not source.startswith(("cert:", "token:", ANONYMOUS, BREAKER)):
        return source
    return f"{identity} ({source})"


def owner(context: RequestContext | None) -> str:
    """Whose is what a caller makes; "": nobody's, where no rules are in force and it shows no token."""
    caller = None if context is None else context.caller
    return "" if caller is None or caller.is_open else owner_name(caller.identity)


def operator_of(context: RequestContext | None, source: str) -> Operator:
    """The operator who asks for a change, by what the caller shows and the rules grant."""
    who = named(context, source)
    if context is None:
        return Operator(who)
    caller, connection = context.caller, context.connection
    peer = None if connection is None else connection.peer
    if caller is None:
        return Operator(who, peer, context.is_granted, owner(context))
    identity = "" if caller.identity == ANONYMOUS else caller.identity
    peer = peer if caller.address is None else (caller.address, 0)
    return Operator(who, peer, context.is_granted, owner(context), identity)
