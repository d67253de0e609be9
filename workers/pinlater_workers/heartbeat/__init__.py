"""ClaimKeeper claims alive from a small process of its own, which no busy job can block.

link        the worker's end: starts the process, and replaces it     child
process     the program                                               beating, dying
beating     when, and what is told to the worker                      table, beats, orphans
orphans     claims that a worker which is held up knows nothing of    beats
beats       one beat: the calls, and what they say of each claim
table       which claims, since when, which are due (pure)
messages    what the two ends say to each other
"""
