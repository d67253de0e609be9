"""Clients of a PinLater server: AsyncClient, and Client as a thin façade over it, from the top down.

client            Client: the calls for programs without asyncio
background        its event loop in a thread, and what becomes of it after a fork
async_client      AsyncClient: the calls, each a typed face of one entry in wire/methods.py
enqueue_batching  enqueues, single ones joined into one call
job_times         the times of jobs as programs give them
dispatcher        one call, whatever it takes
retry             which failed call may be sent again, and when
server_list       the servers there are, how they are doing, and whose turn it is
addresses         the servers that a client is told to talk to
pool              the connections to one server
connection        one connection: calls and answers as bytes
joining           a name that programs imported before
"""
