"""A calm caller beside a noisy one: single enqueues of one identity while another one makes 32 at a time without pause.

Beside it the same where the noisy one calls another server on this machine, so that what the machine itself shares is
left out; and two noisy identities, of 32 and of 4 connections.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from pinlater import Client
from pinlater.access.tokens import token_hash
from pinlater.data_folder.password import hash_password
from tests.bench.figures import Figure, OfFloor
from tests.bench.measures.pickup import quantile
from tests.bench.processes import Program, Server, served
from tests.bench.run import PERSISTENCE, Run, stand

SECONDS = 3.0
CALM, NOISY, OTHER = "plt_calm", "plt_noisy", "plt_other"
PASSWORD = "bench"
NOISY_CONNECTIONS = 32
FEW_CONNECTIONS = 4


def measure(run: Run) -> Iterator[Figure]:
    for name in ("sqlite", "redis"):
        yield from _beside(run, name)


def _beside(run: Run, name: str) -> Iterator[Figure]:
    here, elsewhere, few, many = list[float](), list[float](), list[float](), list[float]()
    seconds = SECONDS * run.sizes.scale
    with ExitStack() as stack:
        ours, theirs = (_server(stack, run, name, number) for number in range(2))
        for number in range(run.sizes.rounds):
            alone = _rate(_calls(seconds, _callers(ours, CALM, 1))[0])
            noisy = _callers(theirs, NOISY, NOISY_CONNECTIONS)
            elsewhere.append(_rate(_calls(seconds, _callers(ours, CALM, 1), noisy)[0]))
            calm, loud = _calls(seconds, _callers(ours, CALM, 1), _callers(ours, NOISY, NOISY_CONNECTIONS))
            here.append(_rate(calm))
            other = _callers(ours, OTHER, FEW_CONNECTIONS)
            two = _calls(seconds, other, _callers(ours, NOISY, NOISY_CONNECTIONS))
            few.append(_rate(two[0]))
            many.append(_rate(two[1]))
            run.say(
                f"  {name}, round {number + 1}: {here[-1] / elsewhere[-1]:.2f} of its rate beside noise elsewhere, "
                f"{here[-1] / alone:.2f} of alone; p50 {quantile(calm['took_ms'], 0.5):.2f} ms, the noisy one "
                f"{_rate(loud):.0f} calls/s; {FEW_CONNECTIONS} connections over {NOISY_CONNECTIONS}: "
                f"{few[-1] / many[-1]:.2f}"
            )
    yield Figure(
        f"fair_use/calm {name}",
        "calls/s",
        here,
        [OfFloor(0.5)],
        elsewhere,
        "the same beside a noisy caller of another server on this machine",
        persistence=PERSISTENCE[name],
        notes=f"one call at a time; the noisy identity has {NOISY_CONNECTIONS} connections, one call at a time on each",
    )
    yield Figure(
        f"fair_use/share {name}",
        "calls/s",
        few,
        [OfFloor(0.67)],
        many,
        f"the calls of an identity with {NOISY_CONNECTIONS} connections at the same time",
        persistence=PERSISTENCE[name],
        notes=f"an identity with {FEW_CONNECTIONS} connections, one call at a time on each",
    )


def _server(stack: ExitStack, run: Run, name: str, number: int) -> Server:
    store = stack.enter_context(stand(run, name, number))
    options = ["--admin-password-hash", hash_password(PASSWORD)]
    server = stack.enter_context(served([store.fresh()], 1, options=options))
    with Client(server.address) as client:
        client.create_queue("bench")
        for token in (CALM, NOISY, OTHER):
            client.update_token(token.removeprefix("plt_"), token_hash(token), ["producer"], PASSWORD)
    return server


def _callers(server: Server, token: str, connections: int) -> Program:
    port = int(server.address.rpartition(":")[2])
    return Program("token_client", port=port, token=token, queue="bench", connections=connections)


def _calls(seconds: float, *callers: Program) -> list[dict[str, Any]]:
    """Of all together, the first one first."""
    for each in reversed(callers):
        each.go()
    time.sleep(seconds)
    for each in callers:
        each.go()
    return [each.result() for each in callers]


def _rate(result: dict[str, Any]) -> float:
    return float(len(result["took_ms"]) / result["seconds"])
