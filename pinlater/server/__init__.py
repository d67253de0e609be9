"""The Thrift server.

thrift_server   the listening socket, time-outs, draining
connection      one connection: order of answers, bounds, back-pressure; a call in flight
handler         one message in, one answer out
state           what all connections have in common: who is admitted, and what they hold
limits          the bounds of a server process
"""
