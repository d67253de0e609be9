"""The bounds on joined enqueues by the names that they had before, for programs that import them."""

from pinlater.client.enqueue_batching import EnqueueBatchLimits as JoiningLimits

__all__ = ["JoiningLimits"]
