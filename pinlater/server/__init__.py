"""The Thrift server.

thrift_server   the listening socket, time-outs, draining
protocol        one connection: order of answers, bounds, back-pressure
handler         one message in, one answer out
limits          the bounds of a server process
"""

from pinlater.server.limits import ServerLimits
from pinlater.server.thrift_server import ThriftServer

__all__ = ["ServerLimits", "ThriftServer"]
