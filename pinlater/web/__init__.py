"""What a server shows over HTTP and sends to statsd: metrics, health, and a page about the cluster."""
