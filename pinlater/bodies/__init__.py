"""Bodies in tiers: object stores beside the shards, for large and for long-delayed bodies (docs/bodies.md)."""
