package pinlater

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"pinlater/workers/go/internal/wire"
)

// Outcome is how an attempt ended.
type Outcome string

// The outcomes of attempts.
const (
	OutcomeSucceeded  Outcome = "succeeded"
	OutcomeFailed     Outcome = "failed"      // for good
	OutcomeRetry      Outcome = "retry"       // an attempt is spent; without any left the job is failed
	OutcomeSnoozed    Outcome = "snoozed"     // no attempt is spent
	OutcomeCancelled  Outcome = "cancelled"   // somebody had asked for it
	OutcomeLost       Outcome = "lost"        // the claim ended; the job is another worker's
	OutcomeHandedBack Outcome = "handed_back" // as it was: the worker stops, or does not know the type
)

// Bounds of what a failure leaves in the job's status, as in workers/pinlater_workers/execution/failure_text.py.
const (
	maxStatusLine  = 500
	maxStatusTrace = 2000
)

// result is an outcome on its way to a server: an ack, or, with requeue, a checkpoint that makes the job pending again.
type result struct {
	job       *Job
	outcome   Outcome
	delay     time.Duration
	status    string
	value     []byte
	body      []byte
	permanent bool
	requeue   bool
	// runAfter of a requeue at a planned moment, in milliseconds; 0: delay counts, or the job keeps its place.
	runAfter int64
	// repeated: it was sent before, and may have been carried out.
	repeated bool
	// isUnknown: what becomes of it is decided when it is sent.
	isUnknown bool
}

func handBack(job *Job) *result { return &result{job: job, outcome: OutcomeHandedBack, requeue: true} }

// panicked is a panic of a handler, with where it was.
type panicked struct {
	value any
	trace string
}

func (p *panicked) Error() string { return fmt.Sprintf("panic: %v", p.value) }

func (w *Worker) run(job *Job) {
	ctx, cancel := context.WithCancel(detached{w.values})
	defer cancel()
	job.mu.Lock()
	job.cancel = cancel
	if job.cause != nil {
		cancel()
	}
	job.mu.Unlock()
	if job.handler.TimeLimit > 0 {
		limit := time.AfterFunc(job.handler.TimeLimit, func() { w.overLimit(job) })
		defer limit.Stop()
	}
	var value any
	err := error(&panicked{value: "the handler ended its goroutine"})
	defer func() {
		if caught := recover(); caught != nil {
			err = &panicked{caught, string(debug.Stack())}
		}
		w.ended(job.decideSafely(value, err))
		w.left(job, false)
	}()
	w.Hooks.Begin(job)
	value, err = job.handler.run(ctx, job)
}

// decideSafely is decide. An error or a result whose own methods panic, as those of a nil pointer do, fails the attempt
// and not the process.
func (j *Job) decideSafely(value any, err error) (made *result) {
	defer func() {
		if caught := recover(); caught != nil {
			made = j.decide(nil, &panicked{caught, string(debug.Stack())})
		}
	}()
	return j.decide(value, err)
}

// decide makes of what a handler returned what becomes of the job.
func (j *Job) decide(value any, err error) *result {
	cause := j.Cause()
	switch {
	case cause == ErrClaimLost || cause == ErrTimeLimit: // the latter has its result already
		return &result{job: j, outcome: OutcomeLost}
	case err == nil:
		return j.succeed(value)
	case cause == ErrCancelled:
		return j.cancelled(err)
	}
	var asked *askedEnd
	switch chose := errors.As(err, &asked); {
	case !chose && cause == ErrStopped:
		return handBack(j)
	case !chose:
		return j.failed(err, j.retryDelay(err))
	case asked.kind == askFail:
		return j.failed(err, -1)
	case asked.kind == askSnooze && j.envelope != nil:
		return j.snooze(asked)
	case asked.kind == askRetry && j.Attempt >= j.allowed():
		return j.failed(err, -1)
	}
	if asked.after < 0 {
		asked.after = 0
	}
	return j.failed(err, asked.after)
}

func (j *Job) succeed(value any) *result {
	made := &result{job: j, outcome: OutcomeSucceeded}
	isItem := j.Headers[itemHeader] != ""
	wanted := j.Headers[resultHeader] == "1" || j.handler.KeepResult && j.Headers[resultHeader] != "0"
	if !wanted && !isItem {
		return made
	}
	line := jsonLine
	if isItem { // of a flow, whose results are JSON alone
		line = ""
	}
	written, err := written(line, value)
	if err != nil {
		return j.failed(fmt.Errorf("its result cannot be kept: %w", err), -1)
	}
	made.value, made.permanent = written, true // no retry mends one that the server finds too large
	return made
}

// cancelled: no attempt follows, whatever the handler returned.
func (j *Job) cancelled(err error) *result {
	text := "cancelled"
	if by := j.CancelledBy(); by != "" {
		text += " by " + by
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		text += ": " + err.Error()
	}
	return &result{job: j, outcome: OutcomeCancelled, status: j.line(text), permanent: true}
}

// failed: a delay below 0 means that no attempt follows.
func (j *Job) failed(err error, delay time.Duration) *result {
	made := &result{job: j, outcome: OutcomeRetry, delay: delay, status: j.line(err.Error())}
	if delay < 0 {
		made.outcome, made.delay, made.permanent = OutcomeFailed, 0, true
	}
	var caught *panicked
	if errors.As(err, &caught) && (delay < 0 || j.attemptsLeft <= 1) {
		trace := j.envelope.masked(strings.ToValidUTF8(caught.trace, "\ufffd"))
		if len(trace) > maxStatusTrace {
			trace = strings.ToValidUTF8(trace[:maxStatusTrace], "") + "...\n"
		}
		made.status += trace
	}
	return made
}

func (j *Job) snooze(asked *askedEnd) *result {
	count := j.Snoozes + 1
	if count > j.handler.MaxSnoozes {
		return j.failed(fmt.Errorf("put off %d times: too often", j.Snoozes), -1)
	}
	next := *j.envelope
	next.Snoozes = count
	body, err := next.body()
	if err != nil {
		return j.failed(err, -1)
	}
	status := fmt.Sprintf("snooze %d of %d\n", count, j.handler.MaxSnoozes)
	return &result{job: j, outcome: OutcomeSnoozed, delay: asked.after, status: status, body: body, requeue: true}
}

// allowed is how many attempts the job has: the fewer of those that it was enqueued with, which the server counts, and
// those of its type; but more than these where its body says so.
func (j *Job) allowed() int {
	own := j.handler.Attempts
	if own == 0 {
		own = j.handler.Retry.Retries + 1
	}
	if j.envelope != nil && j.envelope.Attempts != 0 && j.AttemptsAllowed > own {
		return j.envelope.Attempts
	}
	return own
}

func (j *Job) retryDelay(err error) (delay time.Duration) {
	if j.Headers[itemHeader] != "" { // the stage of its flow says whether there is another attempt, and when
		return 0
	}
	defer func() {
		if caught := recover(); caught != nil {
			j.worker.client.log("the retry policy of %s failed, the default one decides: %v", j.Name, caught)
			delay = DefaultRetry().after(j.Attempt, 0, err)
		}
	}()
	return j.handler.Retry.after(j.Attempt, j.allowed(), err)
}

// line is what people look for first, then when and where.
func (j *Job) line(text string) string {
	most := j.AttemptsAllowed
	if j.attemptsLeft > most {
		most = j.attemptsLeft
	}
	text = fmt.Sprintf("attempt %d of %d: %s", j.Attempt, most, j.envelope.masked(text))
	took := time.Duration(0)
	if !j.began.IsZero() {
		took = time.Since(j.began)
	}
	at := time.Now().Add(-took).UTC().Format(time.RFC3339)
	return fmt.Sprintf("%s [%s, %.1fs, %s]\n", oneLine(text, maxStatusLine), at, took.Seconds(), j.worker.place)
}

func (r *result) ack() *wire.PinLaterJobAckInfo {
	made := wire.NewPinLaterJobAckInfo()
	made.JobDescriptor, made.ClaimDescriptor = r.job.Descriptor, textOf(r.job.claim)
	made.AppendCustomStatus, made.Permanent, made.Result_ = r.status, r.permanent, r.value
	made.RetryDelayMillis = ceilMillis(r.delay)
	if r.job.claim != "" {
		fraction, text, lines := r.job.taken()
		if fraction != nil {
			made.Progress = &wire.JobProgress{Fraction: fraction, Text: text}
		}
		made.LogLines = lines
		r.job.untaken(fraction, text, lines) // for the next time that it is sent
	}
	return made
}

func (r *result) checkpoint() *wire.PinLaterCheckpointJobRequest {
	made := wire.NewPinLaterCheckpointJobRequest()
	made.JobDescriptor, made.ClaimDescriptor = r.job.Descriptor, textOf(r.job.claim)
	made.MoveToPending, made.NewBodyBytes_, made.PrependCustomStatus = true, r.body, textOf(r.status)
	at := r.runAfter
	if at == 0 && r.outcome == OutcomeHandedBack {
		at = r.job.runAfterMs // it keeps its place in the queue
	} else if at == 0 {
		at = time.Now().UnixMilli() + ceilMillis(r.delay)
	}
	if at != 0 {
		made.RunAfterTimestampMillis = &at
	}
	return made
}

// ceilMillis is never early.
func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// detached is a context with the values of another one, which does not end with it.
type detached struct{ context.Context }

func (detached) Deadline() (time.Time, bool) { return time.Time{}, false }
func (detached) Done() <-chan struct{}       { return nil }
func (detached) Err() error                  { return nil }
