"""Many servers as one cluster: which are alive, which shard each owns, what time it is, and the numbers of jobs."""
