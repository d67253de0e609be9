"""A simulation of large clusters: the product's own code over simulated stores, network and time.

Router, health, deadlines, leases, maintenance, replication of config entries, quotas, rates and long polls are those of
the product, unchanged. The stores keep what the reference of the conformance suite keeps. Time is virtual: it jumps to
what comes next, so an hour takes as long as the work in it. All chance comes from one seed.

    python -m tests.simulation --servers 100 --shards 200 --seed 1 --scenario partition

    virtual_time   the event loop, and the clocks of machines
    store          one store, and the calls that it takes
    network        the ways from servers to stores: delays, failures, and the tally of all calls
    server         a server process, without its sockets
    cluster        all of them, and what is watched while they run
    load           producers, workers, and the ledger of all jobs
    scenarios      what happens to the cluster, and what must hold meanwhile
    cost           what an idle cluster costs, counted
"""
