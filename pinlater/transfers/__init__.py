"""Exports of shards, their import into stores of any kind, and the move of a shard from one store to another."""
