"""The HTTP interface: JSON calls, sessions for browsers and server-sent events, in a process of its own.

It speaks to the servers as any client does, so nothing that a browser does can delay a job.
"""
