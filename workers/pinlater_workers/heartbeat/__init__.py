"""Claims kept alive by a small process of its own, which no busy job can block.

heartbeats    the worker's end: starts the process, and replaces it
process       the program: when each claim is beaten; claims that a worker which is held up knows nothing of
beats         one beat, and the schedule of beats (pure)
messages      what the two ends say to each other
"""
