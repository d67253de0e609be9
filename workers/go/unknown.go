package pinlater

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"pinlater/workers/go/internal/wire"
)

// Jobs that this worker cannot run: requeued without an attempt spent, ever less often, and failed after a time. The
// first line of such a job's status says since when, and is all that is kept: it is read and written as by
// workers/pinlater_workers/worker/unknown_jobs.py, so that it counts for all workers together.

const (
	longestRound = 10 * time.Minute
	// A round is a quarter of the time before it.
	roundsPerWait = 4
	maxNameChars  = 100
	timeLayout    = "2006-01-02T15:04:05.000Z"
)

var unknownLine = regexp.MustCompile(
	`(?m)^not run: .* since (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z) \(.*; looked for again after (\S+), later less often`)

var pidOfProcess = os.Getpid()

// decideUnknown says what becomes of the jobs of the batch that nobody here can run. It gives those that are failed, also
// by an earlier call: their acks may not have arrived.
func (w *Worker) decideUnknown(ctx context.Context, b *batch) (*batch, error) {
	request := wire.NewPinLaterLookupJobRequest()
	request.JobDescriptors = []string{}
	for _, each := range b.results {
		if each.isUnknown {
			request.JobDescriptors = append(request.JobDescriptors, each.job.Descriptor)
		}
	}
	var found map[string]*wire.PinLaterJobInfo
	if len(request.JobDescriptors) > 0 {
		var err error
		how := calling{timeout: ackTimeout, repeat: true}
		if found, err = ask(ctx, w.acks, how, (*wire.PinLaterClient).LookupJobs, request); err != nil {
			return nil, err
		}
	}
	ended, now := &batch{queue: b.queue, repeated: true}, time.Now().UnixMilli()
	for _, each := range b.results {
		if each.isUnknown {
			status := ""
			if info := found[each.job.Descriptor]; info != nil {
				status = info.CustomStatus
			}
			w.decideOne(each, status, now)
			each.isUnknown = false
		}
		if !each.requeue {
			ended.results = append(ended.results, each)
		}
	}
	return ended, nil
}

func (w *Worker) decideOne(r *result, status string, now int64) {
	job := r.job
	name := "a body that is not the framework's"
	if job.Name != "" {
		name = "type " + oneLine(job.Name, maxNameChars)
	}
	since, first, isKnown := firstSeen(status)
	limit := w.UnknownLimit.Milliseconds()
	isPlanned := isKnown && job.runAfterMs > since && nextRound(since, first, job.runAfterMs-1) == job.runAfterMs
	w.meet(job, !isKnown)
	switch {
	case !isKnown || !isPlanned && now-since >= limit/2: // somebody ran it or put it off: the time counts from anew
		first = w.UnknownDelay.Milliseconds()
		r.status = fmt.Sprintf(
			"not run: %s, unknown to the workers of queue %s since %s (%s); looked for again after %s, later less often; FAILED after %s\n",
			name, job.Queue, time.UnixMilli(now).UTC().Format(timeLayout), w.place, durationText(w.UnknownDelay), durationText(w.UnknownLimit))
		r.runAfter = nextRound(now, first, now)
		w.logOnce("unknown "+job.Queue+" "+name, fmt.Sprintf("queue %s has jobs that are unknown here, %s; they are requeued", job.Queue, name))
	case isPlanned && now-since >= limit:
		text := fmt.Sprintf("UnknownType: %s, unknown to the workers of queue %s for %s", name, job.Queue, durationText(millis(now-since)))
		w.client.log("job %s has failed, no attempt follows: %s", job.Descriptor, text)
		r.requeue, r.outcome, r.permanent, r.status = false, OutcomeFailed, true, job.line(text)
	default:
		r.runAfter = nextRound(since, first, now)
	}
}

// meet is for the list of workers.
func (w *Worker) meet(job *Job, isFirst bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	key := [2]string{job.Queue, oneLine(job.Name, maxNameChars)}
	each := w.unknown[key]
	if each == nil {
		if len(w.unknown) >= maxReported {
			return
		}
		each = &wire.UnknownType{QueueName: job.Queue, JobType: textOf(key[1]), Jobs: new(int64)}
		w.unknown[key] = each
	}
	if isFirst {
		*each.Jobs++
	}
	w.metAt[key] = time.Now()
}

// firstSeen reads the newest line that says so: it stands in front. Times are in milliseconds.
func firstSeen(status string) (since, first int64, ok bool) {
	match := unknownLine.FindStringSubmatch(status)
	if match == nil {
		return 0, 0, false
	}
	at, err := time.Parse(timeLayout, match[1])
	if err != nil {
		return 0, 0, false
	}
	after, err := time.ParseDuration(daysAsHours(match[2]))
	if err != nil || after < time.Millisecond {
		return 0, 0, false
	}
	return at.UnixMilli(), after.Milliseconds(), true
}

// nextRound is the first round after that moment.
func nextRound(since, first, after int64) int64 {
	at, longest := since, longestRound.Milliseconds()
	for at <= after {
		quarter := (at - since) / roundsPerWait
		step, steps := quarter, int64(1)
		if step > longest {
			step = longest
		}
		if step < first {
			step = first
		}
		if first >= longest || quarter >= longest { // they are alike from here on
			steps = (after-at)/step + 1
		}
		at += steps * step
	}
	return at
}

var days = regexp.MustCompile(`^(\d+)d`)

// daysAsHours writes a duration of the project as Go reads it.
func daysAsHours(text string) string {
	return days.ReplaceAllStringFunc(text, func(day string) string {
		var count int
		fmt.Sscanf(day, "%dd", &count)
		return fmt.Sprintf("%dh", 24*count)
	})
}

// durationText writes a duration as the project does: 1d, 1h30m, 10s.
func durationText(d time.Duration) string {
	text := ""
	for i, unit := range []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second, time.Millisecond} {
		if count := d / unit; count > 0 {
			text += strconv.FormatInt(int64(count), 10) + [...]string{"d", "h", "m", "s", "ms"}[i]
			d -= count * unit
		}
	}
	return firstOf(text, "0s")
}
