"""The jobs on asynq, whose client has one call for each."""

from tests.bench.peers.go_sender import send

__all__ = ["send"]
