"""The trial of the worker kits: one driver, and a column for each kit, whose program is the thing under test.

A row is one thing that a correct worker or producer does, in one sentence (rows_*.py). A column is a kit: its language,
what it speaks, and how its program is built and started (columns.py). A program is PROGRAM worker CONFIG.json or
PROGRAM producer CONFIG.json; tests/kits/python/program.py shows all that one has to do.

    pytest tests/kits/test_trial.py -k go-                           # one column, without the rows of a release
    pytest tests/kits/test_trial.py -k "go-sigterm or go-stalled"    # some rows of it
    pytest tests/kits/test_trial.py --release -k go-                 # with those that wait for a lease or a time-out
    python -m tests.kits                                     # all, and write the table of docs/languages.md

The rows of a column run at once, eight at a time, in threads: most of them wait. Each has a queue of its own, and what
it breaks, a server or a proxy, is its own as well. A row that fails says what the ledger and the store have; the
program's own output is in worker-N.log and producer-N.log in the folder that the failure names.
"""
