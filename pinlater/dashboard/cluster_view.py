"""The cluster: its server processes, its shards with their health, which can be drained, and the tiers of bodies."""

from __future__ import annotations

import asyncio

from aiohttp import web

from pinlater.dashboard.page import Page, PageRoute, PartFailed
from pinlater.errors import MethodUnknown, RequestInvalid
from pinlater.model import AccessAction, ClusterStatus, ShardView
from pinlater.model.body_words import BodyTiers
from pinlater.wire.operator_methods import UPDATE_SHARD

PATH = "/dashboard/cluster"
KEY_PARTS = 4_096
"""Of all keys; each has a home."""


async def _tiers(page: Page) -> BodyTiers:
    async def load() -> BodyTiers:
        try:
            return await page.api.get_body_tiers(context=page.context)
        except MethodUnknown:  # servers of before tiers have none
            return BodyTiers()

    return await page.snapshots.get(page.context, "tiers", load)


async def cluster_view(page: Page) -> web.Response:
    status, tiers, alarms = await asyncio.gather(
        page.part(lambda: page.snapshots.cluster(page.context)), page.part(lambda: _tiers(page)), page.alarms_here()
    )
    return page.render(
        "cluster.html",
        cluster=status,
        alarms=alarms,
        tiers=tiers,
        notes={} if isinstance(status, PartFailed) else {each.id: _notes(each, status) for each in status.shards},
        may_set=page.rights.may_call(UPDATE_SHARD),
        key_parts=KEY_PARTS,
    )


def _notes(shard: ShardView, status: ClusterStatus) -> list[str]:
    """What else there is to say of a shard."""
    seen_out = [f"{each.server}/{each.process}" for each in status.servers if shard.id in each.shards_out]
    seen_full = [f"{each.server}/{each.process}" for each in status.servers if shard.id in each.shards_full]
    notes = [shard.trouble] if shard.trouble else []
    notes += [f"out for {', '.join(seen_out)}"] if seen_out else []
    notes += [f"full for {', '.join(seen_full)}"] if seen_full else []
    if shard.jobs_by_queue:
        most = sorted(shard.jobs_by_queue.items(), key=lambda each: -each[1])[:5]
        notes.append("left: " + ", ".join(f"{jobs:,} of {queue}" for queue, jobs in most))
    if shard.is_given_up:
        notes.append("given up: keys that lived here are new elsewhere")
    if shard.left_slots:
        notes.append(f"{shard.left_slots:,} of {KEY_PARTS:,} parts of keys have something left here")
    if shard.barriers:
        notes.append(f"{shard.barriers:,} serialize keys wait for what is left where they lived before")
    return notes


async def drain_shard(page: Page) -> web.Response:
    return await _update(page, dequeue_only=True, done="stores no new jobs; those that are not due soon move away.")


async def undrain_shard(page: Page) -> web.Response:
    return await _update(page, dequeue_only=False, done="stores new jobs again, unless the configuration forbids it.")


async def _update(page: Page, *, dequeue_only: bool, done: str) -> web.Response:
    page.back = PATH
    shard = page.request.match_info["shard"]
    if len(shard) > 100:
        raise RequestInvalid("there is no such shard")
    changed = await page.api.update_shard(shard, page.password, dequeue_only=dequeue_only, context=page.context)
    missed = f" Shard {', '.join(changed.missed_shards)} was not reached yet." if changed.missed_shards else ""
    return page.redirect(PATH, f"Shard {shard} {done}{missed}")


PAGES = (
    PageRoute("GET", PATH, cluster_view),
    PageRoute("POST", f"{PATH}/shards/{{shard}}/drain", drain_shard, AccessAction.ADMIN),
    PageRoute("POST", f"{PATH}/shards/{{shard}}/undrain", undrain_shard, AccessAction.ADMIN),
)
