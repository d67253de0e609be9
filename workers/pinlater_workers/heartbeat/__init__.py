"""Claims kept alive by a small process of its own, which no busy job can block.

heartbeats    the worker's end: starts the process, and replaces it
process       the program        heartbeat_loop   what it does: when each claim is beaten; claims that a worker which is
              held up knows nothing of
own_beats     that loop in the worker itself, while there is no process
blocked_loop  the watch over the worker's event loop      loop_witness   the thread that says what blocks it
beats         one beat, and the schedule of beats (pure)
messages      what the two ends say to each other
"""
