"""`scripts/bench`: what a whole cycle over Thrift costs beside the store alone, measured in one run."""
