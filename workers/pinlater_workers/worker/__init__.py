"""The worker's loop: from the claim of a job to the ack of its result.

worker      run, stop, view                      engine     the parts, and the order of the end
polling     dequeues, with acks riding           asking     which queues, how many, how long (pure; turns: by weight)
standing    how each queue is doing              trouble    said once, and how long to wait
jobs        what runs                            intake     from a body to a job of a known type
sweep       time limits                          keeping    claims kept alive (leases: which; pure)
delivery    results, until a server has them     outbox, parcel, results
"""

from pinlater_workers.worker.worker import ExitReason, Worker

__all__ = ["ExitReason", "Worker"]
