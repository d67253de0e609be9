"""The same jobs for PinLater's workers and for other Python job queues, on one Redis (measures/peers.py).

A module per product declares one no-op job for each of BENCH_QUEUES, as its own manual would, and `send`. Each job
writes when it was sent and when it began to a file, so that all are counted in one way, by what did run.
The others' packages are in an environment of their own; this package imports nothing but the standard library there.
"""
