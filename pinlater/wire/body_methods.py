"""The calls about tiers of bodies, part of the table in methods.py."""

from __future__ import annotations

from pinlater.model import AccessAction
from pinlater.wire import convert_bodies as bodies
from pinlater.wire.method import Idempotency, Method, every_queue

GET_BODY_TIERS = Method(
    "getBodyTiers",
    "get_body_tiers",
    Idempotency.READ,
    (AccessAction.OPERATE,),
    every_queue,
    lambda api, args, context: api.get_body_tiers(context=context),
    result=bodies.body_tiers_from_wire,
)

CHANGE_BODIES = Method(
    "changeBodies",
    "change_bodies",
    Idempotency.REPEAT,
    (AccessAction.OPERATE,),
    every_queue,
    lambda api, args, context: api.change_bodies(bodies.bodies_change_from_wire(args.request), context=context),
    request=bodies.bodies_change_to_wire,
    result=bodies.bodies_step_from_wire,
)
