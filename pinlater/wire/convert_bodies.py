"""The calls about tiers of bodies, both ways; see convert_operators.py."""

from __future__ import annotations

from typing import Any

from pinlater.errors import RequestInvalid
from pinlater.model import CONTINUATION_START
from pinlater.model.body_words import BodiesAction, BodiesChange, BodiesStep, BodyTier, BodyTiers
from pinlater.wire.interface import filled, struct

_ChangeBodiesRequest = struct("ChangeBodiesRequest")
_ACTIONS = {int(action): action for action in BodiesAction}


def bodies_change_from_wire(request: Any) -> BodiesChange:
    """RequestInvalid."""
    action = _ACTIONS.get(request.action)
    if action is None:
        allowed = ", ".join(f"{each.name} {each}" for each in BodiesAction)
        raise RequestInvalid.of("action", request.action, allowed)
    return BodiesChange(
        action,
        request.queue_name or "",
        request.tier or "",
        request.dry_run or False,
        request.store or "",
        CONTINUATION_START if request.continuation is None else request.continuation,
        500 if request.limit is None else request.limit,
    )


def bodies_change_to_wire(change: BodiesChange) -> Any:
    return filled(
        _ChangeBodiesRequest,
        action=change.action,
        queue_name=change.queue or None,
        tier=change.tier or None,
        dry_run=change.dry_run,
        store=change.store or None,
        continuation=change.continuation,
        limit=change.limit,
    )


def bodies_step_from_wire(response: Any) -> BodiesStep:
    return BodiesStep(
        response.continuation,
        response.looked_at,
        response.found,
        response.done,
        response.bytes,
        response.troubles or [],
    )


def body_tiers_from_wire(response: Any) -> BodyTiers:
    return BodyTiers(
        [_tier(each) for each in response.tiers],
        response.rules,
        response.lacking or [],
        response.to_delete or 0,
        response.strangers or [],
    )


def _tier(view: Any) -> BodyTier:
    return BodyTier(
        view.name,
        view.url,
        view.trouble or "",
        view.bodies,
        view.bytes,
        view.orphans,
        view.counted_at_ms,
        view.put_p50_ms,
        view.put_p99_ms,
        view.get_p50_ms,
        view.get_p99_ms,
        view.fallbacks or 0,
        view.read_failures or 0,
    )
