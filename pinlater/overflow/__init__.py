"""Jobs that no shard takes, kept on the server's own disk until one does; see docs/overflow.md."""

from pinlater.overflow.forwarding import Forwarding
from pinlater.overflow.overflow import Overflow
from pinlater.overflow.ownership import overflow_addresses
from pinlater.overflow.store import ServerContext

__all__ = ["Forwarding", "Overflow", "ServerContext", "overflow_addresses"]
