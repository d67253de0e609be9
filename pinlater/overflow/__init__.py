"""Jobs that no shard takes, kept on the server's own disk until one does; see docs/overflow.md."""

from pinlater.overflow.overflow import Overflow
from pinlater.overflow.ownership import overflow_addresses
from pinlater.overflow.routing import RoutedCalls
from pinlater.overflow.store import ServerContext

__all__ = ["Overflow", "RoutedCalls", "ServerContext", "overflow_addresses"]
