"""Clients of a PinLater server: AsyncClient, and Client as a thin façade over it, from the top down.

client            Client: the calls for programs without asyncio
*_client          its calls in parts, made from those of AsyncClient by `python -m tests.packaging.client_calls`
background        its event loop in a thread, and what becomes of it after a fork
async_client      AsyncClient: the calls, each a typed face of one entry in wire/methods.py
client_calls      the way of a call to the table of methods
enqueue_batching  enqueues, single ones joined into one call
job_arguments     jobs, acks and requests as programs give them
argument_kinds    which kinds of arguments a call takes, and what is said of another
dispatcher        one call, whatever it takes
retry             which failed call may be sent again, and when
server_list       the servers there are, how they are doing, and whose turn it is
addresses         the servers that a client is told to talk to
pool              the connections to one server
connection        one connection: calls and answers as bytes
joining           a name that programs imported before
"""
