package pinlater

import (
	"context"
	"runtime"
	"sort"
	"sync"
	"time"

	"pinlater/workers/go/internal/wire"
)

// Figures of workers/pinlater_workers/heartbeat/beats.py, reports.py and worker/claims.py.
const (
	longestInterval = 10 * time.Second
	longestRetry    = time.Second
	longestFirst    = time.Second
	longestMargin   = 2 * time.Second
	expiryTolerance = 5 * time.Second
	longestTimeout  = 5 * time.Second
	shortestTimeout = 500 * time.Millisecond
	keepTimeout     = 2 * time.Second
	claimsPerCall   = 1_000
	progressEvery   = time.Second
	reportEvery     = 10 * time.Second
	reportRetry     = 2 * time.Second
	maxReported     = 100
	metFor          = 15 * time.Minute
)

// kitVersion is that of the project.
const kitVersion = "0.1.0"

func atMost(d, most time.Duration) time.Duration {
	if d > most {
		return most
	}
	return d
}

func (w *Worker) interval() time.Duration  { return atMost(w.Lease/3, longestInterval) }
func (w *Worker) firstBeat() time.Duration { return atMost(w.Lease/6, longestFirst) }

// beat keeps the claims alive, and reports the worker, until the context ends.
func (w *Worker) beat(ctx context.Context) {
	var reportAt time.Time
	var last [3]bool
	for {
		if w.beats.hasStayed() {
			w.beats.renew()
			w.dueNow()
		}
		now := time.Now()
		w.mu.Lock()
		state := [3]bool{w.isStopping(), w.isQuiet, w.isLeaving}
		w.mu.Unlock()
		isReport := !now.Before(reportAt) || state != last
		last = state
		w.loseOverdue(now)
		due := w.dueClaims(now)
		if len(due) > 0 || isReport {
			reported := w.beatClaims(ctx, due, isReport)
			if isReport {
				reportAt = now.Add(reportEvery)
			}
			if isReport && !reported {
				reportAt = now.Add(reportRetry)
			}
		}
		timer := time.NewTimer(w.nextBeat(reportAt))
		select {
		case <-timer.C:
		case <-w.beatNow:
		case <-w.stoppingOnce(state[0]):
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// stoppingOnce is never ready where the stop is known.
func (w *Worker) stoppingOnce(isKnown bool) <-chan struct{} {
	if isKnown {
		return nil
	}
	return w.stopping
}

// nextBeat is how long nothing is due; claims that come meanwhile are not due before that.
func (w *Worker) nextBeat(reportAt time.Time) time.Duration {
	next := time.Now().Add(w.firstBeat())
	if reportAt.Before(next) {
		next = reportAt
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for job := range w.claims {
		if job.beatAt.Before(next) {
			next = job.beatAt
		}
	}
	return time.Until(next) + time.Millisecond
}

func (w *Worker) dueClaims(now time.Time) []*Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	var due []*Job
	for job := range w.claims {
		if !job.beatAt.After(now) {
			job.beatAt = now.Add(w.interval())
			due = append(due, job)
		}
	}
	return due
}

// dueNow: a connection is gone that claims may have been bound to.
func (w *Worker) dueNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job := range w.claims {
		job.beatAt = time.Time{}
	}
}

func (w *Worker) keepClaims() {
	w.dueNow()
	wake(w.beatNow)
}

// beatAll binds all claims to a connection of the heartbeats, if a server answers soon.
func (w *Worker) beatAll(ctx context.Context) {
	w.dueNow()
	within, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	if due := w.dueClaims(time.Now()); len(due) > 0 {
		w.beatClaims(within, due, false)
	}
}

// say: the job has reported something, which leaves at once, or a second after the last time.
func (w *Worker) say(job *Job) {
	w.mu.Lock()
	at := job.saidAt.Add(progressEvery)
	if now := time.Now(); at.Before(now) {
		at = now
	}
	if isEarlier := at.Before(job.beatAt); isEarlier {
		job.beatAt, job.saidAt = at, at
		wake(w.beatNow)
	}
	w.mu.Unlock()
}

// beatClaims sends the heartbeats of these, queue by queue at once; with a report, if wanted. Did that get through?
func (w *Worker) beatClaims(ctx context.Context, jobs []*Job, withReport bool) bool {
	parts := map[string][][]*Job{}
	for _, job := range jobs {
		of := parts[job.Queue]
		if last := len(of) - 1; last < 0 || len(of[last]) == claimsPerCall {
			of = append(of, nil)
		}
		of[len(of)-1] = append(of[len(of)-1], job)
		parts[job.Queue] = of
	}
	var calls sync.WaitGroup
	for queue, of := range parts {
		for _, part := range of {
			calls.Add(1)
			go func(queue string, part []*Job) { defer calls.Done(); w.beatPart(ctx, queue, part) }(queue, part)
		}
	}
	reported := !withReport || w.report(ctx, false)
	calls.Wait()
	return reported
}

func (w *Worker) beatTimeout() time.Duration {
	timeout := atMost(w.Lease/6, longestTimeout)
	if timeout < shortestTimeout {
		timeout = shortestTimeout
	}
	return timeout
}

func (w *Worker) beatPart(ctx context.Context, queue string, jobs []*Job) {
	request := wire.NewHeartbeatJobsRequest()
	request.QueueName = queue
	for _, job := range jobs {
		made := wire.NewJobHeartbeat()
		made.JobDescriptor, made.ClaimDescriptor = job.Descriptor, job.claim
		w.mu.Lock()
		isDone := job.isDone // then its ack says it
		w.mu.Unlock()
		if !isDone {
			made.Fraction, made.Text, made.LogLines = job.taken()
		}
		request.Heartbeats = append(request.Heartbeats, made)
	}
	began := time.Now()
	how := calling{timeout: w.beatTimeout(), repeat: true}
	answer, err := ask(ctx, w.beats, how, (*wire.PinLaterClient).HeartbeatJobs, request)
	again := time.Now().Add(atMost(w.interval()/4, longestRetry))
	for i, job := range jobs {
		outcome := wire.HeartbeatOutcome_UNREACHABLE
		if err == nil && i < len(answer.Outcomes) {
			outcome = answer.Outcomes[i]
		}
		switch outcome {
		case wire.HeartbeatOutcome_OK:
			w.held(job, began)
		case wire.HeartbeatOutcome_LOST:
			w.lost(job)
		case wire.HeartbeatOutcome_CANCEL:
			w.held(job, began)
			w.cancelled(job, answer.CancelledBy[job.Descriptor])
		case wire.HeartbeatOutcome_UNREACHABLE:
			made := request.Heartbeats[i]
			job.untaken(made.Fraction, made.Text, made.LogLines)
			w.mu.Lock()
			job.beatAt = again
			w.mu.Unlock()
		}
	}
}

// held: the claim was renewed by a call that began then.
func (w *Worker) held(job *Job, at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if at.After(job.goodAt) {
		job.goodAt = at
	}
}

// loseOverdue tells jobs whose claims no server has renewed for so long that they may have expired.
func (w *Worker) loseOverdue(now time.Time) {
	var overdue []*Job
	w.mu.Lock()
	for job := range w.claims {
		if now.Sub(job.goodAt) > w.Lease-atMost(w.Lease/8, longestMargin) {
			overdue = append(overdue, job)
		}
	}
	w.mu.Unlock()
	for _, job := range overdue {
		w.lost(job)
	}
}

// hasExpired tells whether a claim has surely ended at the servers, whose clocks may be a little behind.
func (w *Worker) hasExpired(job *Job) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(job.goodAt) > w.Lease+expiryTolerance
}

// lost: of a job that has ended here nothing is lost yet; its result is sent until a server answers.
func (w *Worker) lost(job *Job) {
	w.mu.Lock()
	isDone := job.isDone
	if !isDone {
		delete(w.claims, job)
		w.discard(job)
	}
	w.mu.Unlock()
	if !isDone && job.stop(ErrClaimLost, "") {
		w.Hooks.Lost(job)
	}
}

func (w *Worker) cancelled(job *Job, by string) {
	w.mu.Lock()
	isDone := job.isDone
	atHand := !isDone && w.discard(job)
	w.mu.Unlock()
	if isDone || !job.stop(ErrCancelled, by) {
		return
	}
	w.Hooks.Cancel(job, by)
	if atHand { // it ends without having begun
		w.put(job.cancelled(nil))
	}
}

// report tells the servers what the worker is and runs, and carries out what an operator wants of it.
func (w *Worker) report(ctx context.Context, hasStopped bool) bool {
	request := wire.NewHeartbeatJobsRequest()
	request.QueueName, request.Heartbeats = w.queue(), []*wire.JobHeartbeat{}
	request.Worker = w.description(hasStopped)
	how := calling{timeout: w.beatTimeout(), repeat: true}
	answer, err := ask(ctx, w.beats, how, (*wire.PinLaterClient).HeartbeatJobs, request)
	if err == nil && answer.Command != nil {
		w.obey(*answer.Command, answer.GetCommandNumber())
	}
	return err == nil
}

// obey carries out each command once, and none that is older than the last.
func (w *Worker) obey(command wire.WorkerCommand, number int64) {
	w.mu.Lock()
	if number <= w.command {
		w.mu.Unlock()
		return
	}
	w.command = number
	w.isQuiet = command != wire.WorkerCommand_RESUME
	w.isLeaving = command == wire.WorkerCommand_STOP
	isQuiet, leaves, endPoll := w.isQuiet, w.isLeaving && len(w.running) == 0, w.endPoll
	w.mu.Unlock()
	w.client.log("an operator wants this worker to %s", map[wire.WorkerCommand]string{
		wire.WorkerCommand_QUIET: "take no more jobs", wire.WorkerCommand_RESUME: "take jobs again",
		wire.WorkerCommand_STOP: "end when its jobs have ended",
	}[command])
	if isQuiet && endPoll != nil {
		w.beatAll(context.Background()) // the poll's connection closes, and claims may be bound to it
		endPoll()
	}
	if leaves && !w.isStopping() {
		w.Stop()
	}
	wake(w.room)
	wake(w.beatNow)
}

func (w *Worker) description(hasStopped bool) *wire.WorkerReport {
	made := wire.NewWorkerReport()
	slots, pid := int32(w.Slots), int32(pidOfProcess)
	made.ID, made.Name = w.id, w.Name
	made.Host, made.Pid, made.Slots = &w.host, &pid, &slots
	made.Versions = map[string]string{"go": runtime.Version(), "pinlater": kitVersion}
	if w.Version != "" {
		made.Versions["app"] = w.Version
	}
	made.HasStopped, made.JobTypes = hasStopped, w.names
	made.Queues = map[string]int32{}
	for queue, weight := range w.Queues {
		made.Queues[queue] = int32(weight)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	busy, stuck, isQuiet := int32(len(w.running)), int32(len(w.stuck)), w.isQuiet
	made.IsStopping = w.isLeaving || w.isStopping()
	if up := time.Since(w.began).Milliseconds(); up > w.upMs {
		w.upMs = up
	} else {
		w.upMs++ // of two reports the one with more is the newer
	}
	made.UpMillis = w.upMs
	made.BusySlots, made.StuckSlots, made.IsQuiet = &busy, &stuck, &isQuiet
	running := make([]*Job, 0, busy+stuck)
	for _, of := range []map[*Job]bool{w.running, w.stuck} {
		for job := range of {
			running = append(running, job)
		}
	}
	sort.Slice(running, func(i, k int) bool { return running[i].began.Before(running[k].began) })
	for i := 0; i < len(running) && i < maxReported; i++ {
		runs := time.Since(running[i].began).Milliseconds()
		made.Running = append(made.Running, &wire.WorkerJob{
			JobDescriptor: running[i].Descriptor, JobType: textOf(running[i].Name), RunningMillis: &runs,
		})
	}
	for key, each := range w.unknown {
		if ago := time.Since(w.metAt[key]); ago > metFor {
			delete(w.unknown, key)
			delete(w.metAt, key)
		} else {
			shown, jobs, ms := *each, *each.Jobs, ago.Milliseconds()
			shown.Jobs, shown.LastMillis = &jobs, &ms
			made.UnknownTypes = append(made.UnknownTypes, &shown)
		}
	}
	return made
}
