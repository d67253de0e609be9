"""References to bodies in a store: those that its jobs have, and those that were dropped."""

# mypy: disable-error-code="empty-body"

from __future__ import annotations

from collections.abc import Sequence

from pinlater.backends.beside_jobs import ReferencesPage
from pinlater.backends.operations import StorePart, operation
from pinlater.model.body_reference import BodyReference


class ReferenceStore(StorePart):
    """A store that lacks it has no references, and no tiers before it."""

    @operation(reads=True, bulk=True, optional=True)
    async def list_references(self, after: str, limit: int) -> ReferencesPage:
        """About `limit` references behind `after` ("": from the beginning), dropped ones included. One that was here
        all the time while the pages were read, at whichever of its jobs, is on one of them at least.
        """
        return ReferencesPage([], "")

    @operation(reads=True, optional=True)
    async def dropped_references(self, limit: int) -> list[BodyReference]:
        """Some of the references that no job has any more: no further one will ever come to have them. Which of them
        is by chance, or in turns, so that some that cannot be deleted do not hide the others.
        """
        return []

    @operation(batch=0, optional=True)
    async def forget_references(self, references: Sequence[BodyReference]) -> None:
        """Strike these off the list of those that were dropped: their objects are deleted."""
