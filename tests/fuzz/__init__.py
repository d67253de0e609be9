"""Fuzzing: what strangers send to each parser of the product, changed until something breaks.

    targets.py     the table: what is fuzzed, with which inputs it begins, and what each may be refused with
    faults.py      what a fault is, and the judge of one execution
    loops.py       the two loops: by atheris, which sees the coverage, and by chance alone
    live.py        the same inputs at a real server over sockets, with a steady caller beside them
    planted.py     faults that are planted, and must be found

docs/testing.md (Fuzzing) says how to run it.
"""
