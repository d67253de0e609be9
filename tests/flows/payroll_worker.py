"""A worker of the payroll that fails at random, and may be killed at any moment: `python -m tests.flows.payroll_worker
LEDGER SERVER...`.

A check that it sends is a line of the ledger, which lies outside of every store: the user, the amount and an id of this
very sending, on the disk before the ack.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import secrets
import sys
from typing import Any

from pinlater import Ack, AsyncClient, DequeuedJob, DequeueRequest, PinLaterError
from tests.flows.async_service import payload_of

QUEUES = {"calculate": "payroll_calculate", "pay": "payroll_pay", "check": "payroll_check"}
CLAIM_TIMEOUT_S = 2.0
FAILING, LATE = 0.03, 0.001
"""The shares of jobs that fail, and that are acked when their claims have expired."""

AT_ONCE = 16


def amount_of(user: int) -> int:
    return 1_000 + 7 * user


class PayrollWorker:
    def __init__(self, ledger: str, client: AsyncClient) -> None:
        self._client = client
        self._file = os.open(ledger, os.O_APPEND | os.O_WRONLY)
        self._random = random.Random()

    async def run(self) -> None:
        await asyncio.gather(*(self._work(stage) for stage in QUEUES))

    async def _work(self, stage: str) -> None:
        while True:
            try:
                jobs = await self._client.dequeue(DequeueRequest(QUEUES[stage], AT_ONCE, wait_ms=500))
                await self._carry_out(stage, jobs)
            except PinLaterError:
                await asyncio.sleep(0.1)  # what was claimed comes again when its claim is over

    async def _carry_out(self, stage: str, jobs: list[DequeuedJob]) -> None:
        succeeded, failed = [], []
        for job in jobs:
            if self._random.random() < FAILING:
                failed.append(Ack(job.descriptor, claim_descriptor=job.claim_descriptor, append_status="out of ink"))
                continue
            result = json.dumps(self._result(stage, payload_of(job))).encode()
            succeeded.append(Ack(job.descriptor, claim_descriptor=job.claim_descriptor, result=result))
            if self._random.random() < LATE:
                await asyncio.sleep(1.25 * CLAIM_TIMEOUT_S)
        if jobs:
            await self._client.ack(QUEUES[stage], succeeded, failed)

    def _result(self, stage: str, payload: Any) -> object:
        if stage == "calculate":
            return {"amount": amount_of(payload["user"])}
        if stage == "pay":
            return {"reference": f"payment {payload['user']}"}
        paid, sent = payload["payload"], secrets.token_hex(8)
        assert payload["result"] == {"reference": f"payment {paid['user']}"}
        os.write(self._file, f"{paid['user']} {paid['amount']} {sent}\n".encode())
        os.fsync(self._file)
        return {"user": paid["user"], "sent": sent}


async def main(ledger: str, *servers: str) -> None:
    async with AsyncClient(*servers, timeout=5.0) as client:
        await PayrollWorker(ledger, client).run()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
