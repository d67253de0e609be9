"""Many shards as one: the router over them, and each shard's health, batches, deadlines and permits."""
