"""The worker's loop: from the claim of a job to the ack of its result.

worker        run, stop, view; the parts, and the order of the end
fetcher       dequeues, with acks riding           scheduler    from which queues, how many, how long (pure)
queue_state   what each queue's last answers said, and incidents in the log
jobs          the jobs that run, and their time limits
batches       jobs that gather, and begin together
claims        claims kept alive, and checkpoints
unknown_jobs  those that this worker cannot run      other_versions   workers that may know them
ack_sender    results, until a server has them     ack_batches  what one call carries
"""

from pinlater_workers.worker.worker import ExitReason, Worker

__all__ = ["ExitReason", "Worker"]
