"""The framework in Python and the kits for Node, Go and Java, beside BullMQ (Node) and asynq (Go) on the same Redis.

No-op jobs are drained from a full queue by one worker command with a hundred slots. All take turns within a round, so
that ratios of one round are those of one state of the machine. The goal of each kit is the rate of its neighbour.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tests.bench.figures import Figure, OfFloor
from tests.bench.measures.peers import available, drained_per_s, figure_of
from tests.bench.peers.products import ASYNQ, BULLMQ, KITS
from tests.bench.run import Run

NEIGHBOURS = {"node_kit": BULLMQ, "go_kit": ASYNQ}


def measure(run: Run) -> Iterator[Figure]:
    products = available(run, [*KITS, BULLMQ, ASYNQ])
    rates: dict[str, list[float]] = {product.name: [] for product in products}
    for number in range(run.sizes.rounds):
        for product in products:
            rates[product.name].append(drained_per_s(run, product, product.slots))
            run.say(f"  {product.name}, round {number + 1}: {rates[product.name][-1]:,.0f} jobs/s")
    for product in products:
        figure = figure_of(f"kits/drain, {product.name}", "jobs/s", rates[product.name], product, product.slots)
        neighbour = NEIGHBOURS.get(product.name)
        if neighbour is not None and neighbour.name in rates:
            goals, floors = [OfFloor(1)], rates[neighbour.name]
            figure = replace(figure, goals=goals, floors=floors, floor_is=f"the rate of {neighbour.name}")
        yield figure
