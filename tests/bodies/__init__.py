"""Bodies in tiers: the object stores under faults, servers with tiers, kills."""
