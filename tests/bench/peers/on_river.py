"""The jobs on River."""

from tests.bench.peers.go_sender import send

__all__ = ["send"]
