"""Where jobs run: threads, processes, or the worker's own event loop.

base          the protocol of a pool, and what all pools share
router        the pool of a worker: each job goes to the pool of its type
threads, coroutines
process_pool  jobs in processes                    process_set  as many processes as are needed
job_process   one of them, as the worker sees it   child        its program      messages   between the two
"""
