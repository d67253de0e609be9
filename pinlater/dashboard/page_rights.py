"""The rights of the caller of a page: which buttons it gets. The servers refuse what it may not do anyway."""

from __future__ import annotations

from typing import Any

from pinlater.model import EVERY_QUEUE, AccessAction, AccessView
from pinlater.wire.method import Access, Method

_CHANGES = (AccessAction.OPERATE, AccessAction.ADMIN, AccessAction.ENQUEUE)


class Rights:
    """What the servers say, and whether the session has the admin password."""

    def __init__(self, view: AccessView, *, has_password: bool) -> None:
        self.view = view
        self.has_password = has_password
        self.is_open = not (view.has_rules or view.roles)
        """No rules are in force, and the caller has no role: some calls need the admin password."""

    def may(self, action: AccessAction, queue: str = EVERY_QUEUE) -> bool:
        if action is AccessAction.ADMIN and self.is_open:
            return self.has_password
        return any(grant.allows((action,), queue, False) for grant in self.view.grants)

    def may_somewhere(self, action: str) -> bool:
        """On some queue at least."""
        return any(action in grant.actions for grant in self.view.grants)

    def may_call(self, method: Method[Any], queue: str = EVERY_QUEUE) -> bool:
        """Whether a call may be made; one of its actions is enough."""
        if method.access is Access.ADMIN_PASSWORD and self.is_open:
            return self.has_password
        return any(self.may(action, queue) for action in method.actions)

    def sees_bodies(self, queue: str) -> bool:
        """Bodies and results of jobs."""
        return any(grant.allows((AccessAction.READ,), queue, True) for grant in self.view.grants)

    @property
    def may_see(self) -> bool:
        """Whether there is anything to show: somebody has said that this caller may look."""
        return not self.is_open and self.may_somewhere(AccessAction.READ)

    @property
    def is_read_only(self) -> bool:
        """It may change nothing."""
        if self.is_open and not self.has_password:
            return False
        return not any(map(self.may_somewhere, _CHANGES))
