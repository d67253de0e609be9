"""Clients of a PinLater server: AsyncClient, and Client as a thin façade over it.

async_client    the calls
target          which servers, and as whom                 clusters, address
calls           one call, whatever it takes                rotation, retry, safety
joining         single enqueues joined into one call
server          one server                                 pool, connection, transport_errors
client          the façade for programs without asyncio
"""
