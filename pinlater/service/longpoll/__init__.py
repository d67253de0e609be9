"""The long poll: dequeues that wait for jobs, in order of arrival, and one poller per queue that looks for them.

    caller ─ wait() ─► LongPolls ──► QueuePoller (one per queue) ──► WaitQueue (its waiters)
                          ▲               │  asks DueQuery, claims by the router, obeys QueueLimits,
    enqueues, acks, ──────┘               │  and keeps in its KnownQueue what it knows of the jobs
    stores (Subscriptions), settings      └─ when it ends, its queue has no poller until the next dequeue waits

The states of a queue's poller, and what moves it between them (`PollerState` in poller_state.py):

         first waiter
              │            a due time comes within a millisecond
              ▼          ┌────────────────────────────────────────► DUE ─────────────┐
            IDLE ────────┤                                                           │ it has come
      rests until the    │ next_poll_at, or poll_now()                               │
      next poll, due ◄───┼─────── nothing is due ──────── POLLING                    │
      time or wakeup     │                                   │ jobs are due          │
        ▲     │          └──────────────────────────────►    │                       │
        │     │ jobs_ready(): claims without a poll          ▼                       ▼
        │     └───────────────────────────────────────► CLAIMING ◄───────────────────┘
        │                                                 │  │  │
        ├── nobody else waits for jobs that are there ────┘  │  └─ the rate, or the maximum in progress, is reached
        │                                                    │                       ▼
        │                       anything unforeseen happens, │                   THROTTLED
        │                       in any state                 ▼                 until the rate allows a job,
        ├──────────────── after 0.5 s, doubled ──────── BACKING_OFF            the next poll, capacity_freed()
        │                 by each further failure                              or other settings
        └──────────────────────────────────────────────────────────────────────────┘

    Any state ─── nobody waits, and the next due time is known ───► ENDED
                                  └── one that served dequeues from several queues ───► PARKED: for 10 s it notes what
                                      is told, and asks nothing. A waiter that comes wakes it; where it is known to be
                                      empty, without a poll

The states of a waiter (`Waiter` in wait_queue.py):

    WAITING ──── in a claim ────► IN_CLAIM ──── the claim brought it jobs ────► answered with these jobs
       │  ▲                          │
       │  └─── it brought none ──────┤
       │                             └─── the caller has gone ────► the jobs go back to PENDING
       ├── its time is over, or the server drains ───► answered with nothing, or with the error of the last round
       └── the queue was deleted, is paused, or cannot be served ───► answered with that error

    A waiter whose time ends while it is IN_CLAIM still gets what that claim brings.

A dequeue from several queues is one waiter in many wait queues (`SharedWaiter` in shared_waiter.py):

    WaitQueue of a ──┐                     ┌── the first poller that claims for it has it IN_CLAIM; the others pass it
    WaitQueue of b ──┼── one SharedWaiter ─┤   over, and remember that they did (`has_passed_over`)
    WaitQueue of c ──┘    one timer        │
          ▲                                ├── the claim brought jobs ──► answered; it leaves all the wait queues
          │ something changed              │
    SetAside: d (paused), e (not there) ◄──┤── a queue cannot be served ──► set aside, and named in the answer
                                           │
                                           └── the claim brought none ──► free: pollers that passed it over claim now
"""

from pinlater.service.longpoll.long_polls import LongPolls

__all__ = ["LongPolls"]
