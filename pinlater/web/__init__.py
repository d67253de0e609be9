"""The HTTP pages of a server, and its messages to statsd: metrics, health, and a page about the cluster."""
