"""The Redis shard: one Lua script per call, everything a shard holds under one hash tag."""

from pinlater.backends.redis.shard import RedisShard

__all__ = ["RedisShard"]
