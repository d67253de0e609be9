"""The same work of two steps on PinLater's flows, by a loop written by hand, and on BullMQ and Celery
(measures/flows.py).

    items {"user": N} ──► calculate: {"amount": ...} ──► pay: {"user": N, "amount": ...} ──► all is done: told
"""
