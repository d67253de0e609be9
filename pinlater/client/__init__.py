"""Clients of a PinLater server: AsyncClient, and Client as a thin façade over it.

async_client    the calls                                       base
client          the same for programs without asyncio           background
target          which servers, and as whom                      address, clusters
fleet           which servers there are just now                server
calls           one call, whatever it takes                     rotation, retry, safety
enqueuing       enqueues, single ones joined into one call      joining
server          one server and the connections to it            pool, connection, transport_errors
"""
