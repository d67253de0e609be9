"""The pools that jobs run in: threads, processes, or the worker's own event loop.

base          the protocol of a pool, and what all pools share
router        the pool of a worker: each job goes to the pool of its type
threads, coroutines
process_pool  jobs in processes      process_set   the processes, as the worker sees them
child         their program          messages      between the two
"""
