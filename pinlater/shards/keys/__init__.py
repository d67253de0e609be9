"""Keys of jobs: on which shard the jobs of a key live, and how calls that name keys get there."""
