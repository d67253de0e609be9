package pinlater

import (
	"runtime/debug"
	"time"
)

// Hooks are called as things happen, for metrics and logs; nil ones are left out. They are to return at once, and are
// called by several goroutines. One that panics is logged, and changes nothing of what becomes of jobs.
type Hooks struct {
	// Started: the first dequeue is on its way.
	Started func()
	// Begin: a handler is called.
	Begin func(job *Job)
	// End: it has returned, with that outcome, after that time; or its job was handed back, or is over its time limit.
	End func(job *Job, outcome Outcome, took time.Duration)
	// Cancel: a job was asked to stop. Lost: its claim is lost.
	Cancel func(job *Job, by string)
	Lost   func(job *Job)
	// Dequeued: so many jobs came in an answer after that time.
	Dequeued func(jobs int, took time.Duration)
	// Acked: so many results were delivered; ignored: so many of them had no effect, as their claims had ended.
	Acked func(results, ignored int)
	// Stopping: the worker takes no more jobs, and ends.
	Stopping func()
}

// guarded gives hooks that may all be called: those that are nil do nothing, and no panic leaves them.
func (h Hooks) guarded(log func(format string, values ...any)) Hooks {
	safely := func(name string, call func()) {
		defer func() {
			if caught := recover(); caught != nil {
				log("the hook %s panicked: %v\n%s", name, caught, debug.Stack())
			}
		}()
		call()
	}
	given := h
	h.Started = func() {
		if given.Started != nil {
			safely("Started", given.Started)
		}
	}
	h.Begin = func(job *Job) {
		if given.Begin != nil {
			safely("Begin", func() { given.Begin(job) })
		}
	}
	h.End = func(job *Job, outcome Outcome, took time.Duration) {
		if given.End != nil {
			safely("End", func() { given.End(job, outcome, took) })
		}
	}
	h.Cancel = func(job *Job, by string) {
		if given.Cancel != nil {
			safely("Cancel", func() { given.Cancel(job, by) })
		}
	}
	h.Lost = func(job *Job) {
		if given.Lost != nil {
			safely("Lost", func() { given.Lost(job) })
		}
	}
	h.Dequeued = func(jobs int, took time.Duration) {
		if given.Dequeued != nil {
			safely("Dequeued", func() { given.Dequeued(jobs, took) })
		}
	}
	h.Acked = func(results, ignored int) {
		if given.Acked != nil {
			safely("Acked", func() { given.Acked(results, ignored) })
		}
	}
	h.Stopping = func() {
		if given.Stopping != nil {
			safely("Stopping", given.Stopping)
		}
	}
	return h
}
