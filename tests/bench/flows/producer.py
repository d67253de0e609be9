"""A producer that makes a flow, streams items into it and waits for its end: `python -m tests.bench.flows.producer
--help`. Says `ready`, begins at a line, and ends with a result. Before, it measures how soon it is told of the end of
small flows, whose only item it carries out itself.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time

import uvloop

from pinlater import Ack, AsyncClient, DequeueRequest
from pinlater.model.flow_words import Applet, AppletKind, NewFlow, NewItem, Stage
from tests.bench.flows.steps import QUEUES

ALONE = "alone"
WARM_UP, TOLD = 5, 50
BATCH = 1_000
WAIT_MS = 30_000
FAILURES = 10
"""What the framework declares for a job that says nothing of its retries. An item that may not fail is never at hand in
a worker without a slot for it, as it would be lost with that worker.
"""
STAGES = (
    Stage("calculate", "calculate", QUEUES[0], max_failures=FAILURES),
    Stage(
        *("pay", "pay", QUEUES[1], "calculate"),
        Applet(AppletKind.MAP, "{user: payload.user, amount: result.amount}"),
        FAILURES,
    ),
)


async def carried_out(client: AsyncClient, items: int) -> float:
    """Seconds from the first item until the end of the flow is told."""
    created = await client.create_flow(NewFlow("payroll", STAGES))
    began_s = time.monotonic()
    for start in range(0, items, BATCH):
        some = [NewItem(b'{"user":%d}' % user) for user in range(start, min(start + BATCH, items))]
        await client.add_flow_items(created.id, "calculate", some, seal=start + BATCH >= items)
    while (status := await client.get_flow(created.id, wait_ms=WAIT_MS)).completed_ms is None:
        pass
    seconds = time.monotonic() - began_s
    counts = [(stage.items, stage.succeeded) for stage in status.stages]
    if counts != [(items, items)] * len(STAGES):
        raise RuntimeError(f"items and successes of the stages are {counts}, not {items}")
    return seconds


async def told_ms(client: AsyncClient) -> float:
    """From sending the last ack of a flow until the end is told to a caller that waits for it."""
    stage = Stage("alone", "", ALONE)
    created = await client.create_flow(NewFlow("one", [stage], items={"alone": [NewItem(b"1")]}, sealed=["alone"]))
    waiting = asyncio.create_task(client.get_flow(created.id, wait_ms=WAIT_MS))
    jobs = await client.dequeue(DequeueRequest(ALONE, 1, wait_ms=WAIT_MS))
    began_s = time.monotonic()
    await client.ack(ALONE, [Ack(job.descriptor, claim_descriptor=job.claim_descriptor) for job in jobs])
    status = await waiting
    if status.completed_ms is None:
        raise RuntimeError(f"flow {status.id} is not over")
    return (time.monotonic() - began_s) * 1_000


async def measured(server: str, items: int, warm_up: int) -> dict[str, object]:
    async with AsyncClient(server, timeout=60.0) as client:
        for queue in (*QUEUES, ALONE):
            await client.create_queue(queue)
        told = [await told_ms(client) for _ in range(WARM_UP + TOLD)][WARM_UP:]
        await carried_out(client, warm_up)
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        cpu_began = time.process_time()
        seconds = await carried_out(client, items)
    return {"jobs": items, "seconds": seconds, "cpu": time.process_time() - cpu_began, "told_ms": told}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", required=True, help="HOST:PORT")
    parser.add_argument("--items", type=int, required=True)
    parser.add_argument("--warm-up", type=int, default=200, help="items of a flow before [200]")
    options = parser.parse_args()
    print(json.dumps(uvloop.run(measured(options.server, options.items, options.warm_up))), flush=True)


if __name__ == "__main__":
    main()
