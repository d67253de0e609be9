"""Queues as the cluster knows them: their settings, and the limits that follow from them."""
