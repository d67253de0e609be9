"""The same jobs for PinLater's workers and clients, and for other job queues (measures/peers.py).

A module per product declares one no-op job for each of BENCH_QUEUES, as its own manual would, and `send`; where the
product's client has no workers, `consume` takes the jobs in a loop. Each job writes when it was sent and when it began
to a file, so that all are counted in one way, by what did run.
The others' packages are in an environment of their own; this package imports nothing but the standard library there.
"""
