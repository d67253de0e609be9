package pinlater

import (
	"context"
	"errors"
	"time"

	"pinlater/workers/go/internal/wire"
)

// Figures of workers/pinlater_workers/worker/ack_batches.py and ack_sender.py.
const (
	ackDelay       = 50 * time.Millisecond
	ackTimeout     = 5 * time.Second
	maxResults     = 1_000
	maxResultBytes = 64 << 10
)

// batch has results of one queue that travel in one call: all are acks, or all are requeues.
type batch struct {
	queue   string
	requeue bool
	results []*result
	bytes   int
	// repeated: some were sent before, and may have been carried out.
	repeated bool
}

// put leaves results to be delivered.
func (w *Worker) put(made ...*result) {
	if len(made) == 0 {
		return
	}
	w.mu.Lock()
	w.results = append(w.results, made...)
	w.unacked += len(made)
	for _, each := range made {
		each.job.isDone = true
	}
	w.mu.Unlock()
	wake(w.resultNow)
}

// deliver sends results until the context ends. Acks wait a little for others, and for a dequeue to ride on.
func (w *Worker) deliver(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-w.resultNow:
		case <-ctx.Done():
		}
		for _, each := range w.takeResults(true, maxResults) {
			go w.send(ctx, each)
		}
		if !w.isStopping() {
			wait(ctx, ackDelay)
		}
		for _, each := range w.takeResults(false, maxResults) {
			go w.send(ctx, each)
		}
	}
}

// takeAcks gives acks for a dequeue to carry.
func (w *Worker) takeAcks() []*batch { return w.takeResults(false, maxResults) }

// takeResults gives the requeues, or the acks, that no call carries yet, in batches; what does not fit stays for the
// next time.
func (w *Worker) takeResults(requeues bool, most int) []*batch {
	w.mu.Lock()
	defer w.mu.Unlock()
	var batches []*batch
	open := map[string]*batch{}
	var kept []*result
	for _, each := range w.results {
		size := len(each.body) + len(each.value)
		into := open[each.job.Queue]
		if into == nil {
			into = &batch{queue: each.job.Queue, requeue: requeues}
		}
		if each.requeue != requeues || most == 0 || len(into.results) > 0 && into.bytes+size > maxResultBytes {
			kept = append(kept, each)
			continue
		}
		if len(into.results) == 0 {
			batches, open[into.queue] = append(batches, into), into
		}
		into.results, into.bytes = append(into.results, each), into.bytes+size
		into.repeated = into.repeated || each.repeated
		most--
	}
	w.results = kept
	if len(kept) > 0 {
		wake(w.resultNow)
	}
	return batches
}

// acks: the successes go before the failures, as the outcomes do.
func (b *batch) acks() *wire.PinLaterJobAckRequest {
	request := wire.NewPinLaterJobAckRequest()
	request.QueueName = b.queue
	for _, each := range b.results {
		if each.outcome == OutcomeSucceeded {
			request.JobsSucceeded = append(request.JobsSucceeded, each.ack())
		} else {
			request.JobsFailed = append(request.JobsFailed, each.ack())
		}
	}
	return request
}

// send sends a batch again and again until it is answered, or the context ends. What a server refuses is found by
// halving.
func (w *Worker) send(ctx context.Context, b *batch) {
	for failures := 0; ctx.Err() == nil; failures++ {
		outcomes, err := w.try(ctx, b)
		if err == nil {
			w.logOver("results", "no results wait for a server any more")
			w.settle(b, outcomes)
			return
		}
		if isRefused(err) {
			w.refused(ctx, b, err)
			return
		}
		b.repeated = true
		if failures > 0 {
			w.giveUp(b)
		}
		if len(b.results) == 0 {
			return
		}
		w.logOnce("results", "results of jobs are not delivered, and are kept meanwhile: "+err.Error())
		wait(ctx, time.Duration(float64(grown(firstPause, failures, lookAgain))*(0.5+randomFloat()/2)))
	}
}

// giveUp leaves out the results whose claims have surely expired: those jobs run again, whatever a server would say. They
// were sent twice at least, since an answer alone may have been lost.
func (w *Worker) giveUp(b *batch) {
	useless := &batch{queue: b.queue}
	var kept []*result
	for _, each := range b.results {
		if w.hasExpired(each.job) {
			useless.results = append(useless.results, each)
		} else {
			kept = append(kept, each)
		}
	}
	if len(useless.results) > 0 {
		w.client.log("no server took the results of %d jobs of queue %s while their claims held; they may run again",
			len(useless.results), b.queue)
		b.results = kept
		w.end(useless)
	}
}

func isRefused(err error) bool {
	var refused *Error
	return errors.As(err, &refused) && (refused.Reason == "REQUEST_INVALID" || refused.Reason == "BODY_TOO_LARGE")
}

func (w *Worker) try(ctx context.Context, b *batch) ([]wire.AckOutcome, error) {
	how := calling{timeout: ackTimeout, repeat: true}
	if b.requeue {
		ended, err := w.decideUnknown(ctx, b)
		if err != nil {
			return nil, err
		}
		if len(ended.results) > 0 {
			if _, err := w.try(ctx, ended); err != nil {
				return nil, err
			}
		}
		request := wire.NewPinLaterCheckpointJobsRequest()
		request.QueueName = b.queue
		for _, each := range b.results {
			if each.requeue {
				request.Requests = append(request.Requests, each.checkpoint())
			}
		}
		if len(request.Requests) == 0 {
			return nil, nil
		}
		return nil, tell(ctx, w.acks, how, (*wire.PinLaterClient).CheckpointJobs, request)
	}
	answer, err := ask(ctx, w.acks, how, (*wire.PinLaterClient).AckJobs, b.acks())
	if err != nil {
		return nil, err
	}
	return answer.Outcomes, nil
}

// settle: a server has these results.
func (w *Worker) settle(b *batch, outcomes []wire.AckOutcome) {
	ignored := 0
	for _, each := range outcomes {
		if each == wire.AckOutcome_IGNORED && !b.repeated {
			ignored++
		}
	}
	if ignored > 0 {
		w.client.log("the results of %d jobs of queue %s had no effect: their claims had ended", ignored, b.queue)
	}
	w.end(b)
	w.Hooks.Acked(len(b.results), ignored)
}

// end: nothing is to be delivered for these any more.
func (w *Worker) end(b *batch) {
	w.mu.Lock()
	for _, each := range b.results {
		delete(w.claims, each.job)
	}
	w.unacked -= len(b.results)
	w.mu.Unlock()
	wake(w.room)
}

// settleRiding: of acks that rode on a dequeue, which failed where there is an error.
func (w *Worker) settleRiding(riding []*batch, outcomes [][]wire.AckOutcome, err error) {
	for i, each := range riding {
		var refused *Error
		switch {
		case err == nil && i < len(outcomes):
			w.settle(each, outcomes[i])
		case err == nil || errors.As(err, &refused) && refused.acksApplied && !isRefused(err):
			w.settle(each, nil)
		default: // by themselves, until they are answered
			for _, one := range each.results {
				one.repeated = true
			}
			w.mu.Lock()
			w.results = append(each.results, w.results...)
			w.mu.Unlock()
			wake(w.resultNow)
		}
	}
}

// refused: others of the batch may have been carried out. A job whose body or result is refused has failed: another
// attempt would end likewise.
func (w *Worker) refused(ctx context.Context, b *batch, err error) {
	if half := len(b.results) / 2; half > 0 {
		for _, part := range [][]*result{b.results[:half], b.results[half:]} {
			go w.send(ctx, &batch{queue: b.queue, requeue: b.requeue, results: part, repeated: true})
		}
		return
	}
	only := b.results[0]
	if only.body == nil && only.value == nil {
		w.client.log("the result of job %s is refused; it runs again when its claim expires: %v", only.job.Descriptor, err)
		w.end(b)
		return
	}
	w.client.log("the result of job %s is refused; it has failed, and no attempt follows: %v", only.job.Descriptor, err)
	b.results, b.requeue, b.repeated = []*result{only.job.failed(err, -1)}, false, true
	go w.send(ctx, b)
}

// flush waits until all results are delivered, or the time for that is over. How many are left?
func (w *Worker) flush() int {
	deadline := time.Now().Add(lastAcks)
	select {
	case <-w.hurried:
		deadline = time.Now().Add(hurriedAcks)
	default:
	}
	for {
		w.mu.Lock()
		left := w.unacked
		w.mu.Unlock()
		if left == 0 || time.Now().After(deadline) {
			return left
		}
		select {
		case <-w.room:
		case <-time.After(time.Until(deadline)):
		}
	}
}
