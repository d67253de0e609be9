"""Jobs that no shard takes, kept on the server's own disk until one does; see docs/overflow.md."""

from pinlater.overflow.forwarding import Forwarding
from pinlater.overflow.overflow import Overflow
from pinlater.overflow.owners import told
from pinlater.overflow.rules import Surroundings

__all__ = ["Forwarding", "Overflow", "Surroundings", "told"]
