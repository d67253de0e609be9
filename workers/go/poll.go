package pinlater

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pinlater/workers/go/internal/wire"
)

const (
	maxLimit = 10_000
	// Beyond the wait of a poll, until its connection counts as dead.
	pollMargin = 5 * time.Second
	// How often it is seen whether queues that are paused, or not there, have changed.
	lookAgain    = 2 * time.Second
	shortestHold = 20 * time.Millisecond
	// Between the two refusals of a token that end a worker. Servers hold back answers to wrong tokens.
	refusedPause, refusedTimeout = 2 * time.Second, time.Minute
	// No more jobs are taken while so many results wait for a server.
	leastUnacked, unackedPerSlot = 10_000, 20
)

// poll takes jobs, one dequeue of all queues at a time, until the context ends.
//
// A server may await the receipt of an answer: something has to be sent on the connection before its jobs begin. That
// is the next dequeue, where there are free slots for it; else a checkpoint of nothing.
func (w *Worker) poll(ctx context.Context) {
	var arrived []*Job
	deliver := func() {
		jobs := arrived
		arrived = nil
		w.take(jobs)
	}
	defer deliver() // whatever happens: they are claimed
	for failures, isFirst := 0, true; ctx.Err() == nil; isFirst = false {
		request := w.request(len(arrived))
		if request == nil && len(arrived) > 0 {
			w.receive(ctx, deliver)
			deliver()
			continue
		}
		if request == nil {
			select {
			case <-w.room:
			case <-ctx.Done():
			}
			continue
		}
		riding := w.takeAcks()
		for _, batch := range riding {
			request.Acks = append(request.Acks, batch.acks())
			request.WaitMillis = 0 // acks are not kept waiting for their answer
		}
		if isFirst {
			w.Hooks.Started()
		}
		held := millis(int64(request.WaitMillis))
		within, end := context.WithCancel(ctx)
		w.mu.Lock()
		w.endPoll = end
		w.mu.Unlock()
		began := time.Now()
		how := calling{timeout: held + pollMargin, once: true, onSent: deliver}
		answer, err := ask(within, w.polls, how, (*wire.PinLaterClient).DequeueFromQueues, request)
		deliver()
		interrupted := within.Err() != nil
		end()
		if err != nil {
			w.settleRiding(riding, nil, err)
			if !interrupted {
				failures++
				w.pollFailed(ctx, err, failures)
			}
			continue
		}
		failures = 0
		w.logOver("servers", "servers answer again")
		w.settleRiding(riding, answer.AckOutcomes, nil)
		arrived = w.claimed(answer, request)
		w.Hooks.Dequeued(len(arrived), time.Since(began))
		if len(arrived) == 0 || !answer.GetAwaitsReceipt() {
			deliver()
			if w.polls.hasStayed() {
				w.beatAll(ctx)
				w.polls.renew()
			}
		}
		w.note(ctx, answer)
	}
}

// request is the next dequeue; nil: there is no slot for its jobs. So many jobs have come and are not here yet.
func (w *Worker) request(arrived int) *wire.DequeueFromQueuesRequest {
	w.mu.Lock()
	defer w.mu.Unlock()
	if most := w.Slots * unackedPerSlot; w.isQuiet || w.isStopping() || w.unacked > most && w.unacked > leastUnacked {
		return nil
	}
	waiting := len(w.atHand) + arrived
	spare := w.Slots - len(w.running) - len(w.stuck) - waiting
	if spare <= 0 && (waiting == 0 || !w.prefetch.wantsMore(waiting)) {
		return nil
	}
	ahead := w.prefetch.next(w.atHand)
	request := wire.NewDequeueFromQueuesRequest()
	for queue, weight := range w.Queues {
		share := wire.NewQueueShare()
		share.QueueName, share.Weight, share.Prefetch = queue, int32(weight), int32(ahead[queue])
		request.Queues = append(request.Queues, share)
	}
	request.Limit = 1
	if spare > 0 {
		request.Limit = int32(spare)
		if spare > maxLimit {
			request.Limit = maxLimit
		}
		held := w.Lease / 3
		if held > longestPoll {
			held = longestPoll
		}
		request.WaitMillis = int32(held.Milliseconds())
	}
	lease := int32(w.Lease.Milliseconds())
	request.ClaimTimeoutMillis = &lease
	request.ReleaseOnDisconnect, request.ConfirmsReceipt = true, true
	return request
}

// claimed are the jobs of an answer; their claims are kept alive from now on.
func (w *Worker) claimed(answer *wire.DequeueFromQueuesResponse, request *wire.DequeueFromQueuesRequest) []*Job {
	jobs := make([]*Job, 0, len(answer.Jobs))
	now := time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	for descriptor, body := range answer.Jobs {
		job := w.newJob(descriptor, body, answer.JobMetadata[descriptor])
		job.arrived, job.goodAt, job.beatAt = now, now, now.Add(w.firstBeat())
		w.claims[job] = true
		w.prefetch.took(job)
		jobs = append(jobs, job)
	}
	w.prefetch.came(len(jobs), int(request.Limit))
	return jobs
}

// receive sends the receipt that is awaited.
func (w *Worker) receive(ctx context.Context, sent func()) {
	nothing := wire.NewPinLaterCheckpointJobsRequest()
	nothing.QueueName, nothing.Requests = w.queue(), []*wire.PinLaterCheckpointJobRequest{}
	how := calling{timeout: pollMargin, once: true, onSent: sent}
	_ = tell(ctx, w.polls, how, (*wire.PinLaterClient).CheckpointJobs, nothing) // the next dequeue finds out what is wrong
}

// note says which queues give nothing. Where all are in error, the answer came at once, and a while is left to them.
func (w *Worker) note(ctx context.Context, answer *wire.DequeueFromQueuesResponse) {
	inError := map[string]bool{}
	hold := lookAgain
	for _, each := range answer.QueueErrors {
		inError[each.QueueName] = true
		wanted := lookAgain
		if each.RetryAfterMillis != nil {
			wanted = millis(each.GetRetryAfterMillis())
		}
		if wanted < hold {
			hold = wanted
		}
		if each.ErrorCode != wire.ErrorCode_DEQUEUE_RATE_LIMITED || each.GetReason() == "QUEUE_PAUSED" {
			w.logOnce("queue "+each.QueueName, fmt.Sprintf("no jobs from queue %s: %s", each.QueueName, each.Message))
		}
	}
	for queue := range w.Queues {
		if !inError[queue] {
			w.logOver("queue "+queue, fmt.Sprintf("queue %s gives jobs again", queue))
		}
	}
	if len(inError) == len(w.Queues) {
		w.hold(ctx, hold)
	}
}

func (w *Worker) pollFailed(ctx context.Context, err error, failures int) {
	var refused *Error
	hold := time.Duration(float64(grown(firstPause, failures-1, lookAgain)) * (0.5 + randomFloat()/2))
	if errors.As(err, &refused) {
		switch {
		case refused.Reason == ErrForbidden.Reason:
			hold = lookAgain
			if unknown := w.tokenRefused(ctx); unknown != nil {
				w.fail(fmt.Errorf("pinlater: the worker ends, as the servers do not know its token: %w", unknown))
				return
			}
		case refused.Reason == ErrQueueNotFound.Reason:
			hold = lookAgain
		case refused.RetryAfter > 0:
			hold = refused.RetryAfter
		}
	}
	if errors.Is(err, ErrUnreachable) && failures < w.polls.count() {
		hold = 0 // the next server at once
	}
	w.logOnce("servers", fmt.Sprintf("no jobs come, and the worker keeps trying: %v", err))
	w.hold(ctx, hold)
}

// tokenRefused is why the servers do not know the token, which its file has had time to change meanwhile; nil: they know
// it, and rules that forbid something may change, or they do not say.
func (w *Worker) tokenRefused(ctx context.Context) error {
	var err error
	for tries := 0; tries < 2; tries++ {
		if tries > 0 {
			wait(ctx, refusedPause)
		}
		how := calling{timeout: refusedTimeout, repeat: true}
		_, err = ask(ctx, w.acks, how, func(to *wire.PinLaterClient, ctx context.Context, caller *wire.RequestContext, _ any) (*wire.AccessView, error) {
			return to.GetAccess(ctx, caller)
		}, nil)
		if !errors.Is(err, ErrForbidden) {
			return nil
		}
	}
	return err
}

// hold waits: not for long, as a pause can end at any time.
func (w *Worker) hold(ctx context.Context, pause time.Duration) {
	if pause > lookAgain {
		pause = lookAgain
	} else if pause < shortestHold {
		pause = shortestHold
	}
	wait(ctx, pause)
}
