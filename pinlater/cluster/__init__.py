"""Many servers as one cluster: who is alive, who looks after which shard, and what all of them hold, in numbers."""
