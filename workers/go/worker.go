package pinlater

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"pinlater/workers/go/internal/wire"
)

// The defaults and bounds of the Python framework: workers/pinlater_workers/app/settings.py, worker/*.py, heartbeat/*.py.
const (
	defaultSlots        = 8
	defaultLease        = 30 * time.Second
	defaultGrace        = 30 * time.Second
	defaultPrefetch     = 50 * time.Millisecond
	defaultUnknownDelay = 10 * time.Second
	defaultUnknownLimit = 24 * time.Hour
	longestPoll         = 20 * time.Second
	lastAcks            = 5 * time.Second
	hurriedAcks         = 2 * time.Second
	lastReport          = time.Second
	// How long handlers have to return after their contexts ended, before their jobs are handed back.
	lastReturns = 500 * time.Millisecond
)

// Options are how a worker works. A field that is zero has the default of the Python framework.
type Options struct {
	// Queues are where jobs are taken from, with their weights: of the queues that have jobs, each gets its share.
	Queues map[string]int
	// Slots is how many jobs run at once: 8.
	Slots int
	// Name is the worker's name in the list of workers: the program's.
	Name string
	// Version is that of your program, in the list of workers.
	Version string
	// Lease is how long a claim holds without a heartbeat: 30 s.
	Lease time.Duration
	// Grace is how long running jobs may go on when the worker stops: 30 s. Below 0: not at all.
	Grace time.Duration
	// Prefetch is how long a quick job may wait here for a slot: 50 ms. Below 0: no more jobs are taken than have slots.
	Prefetch time.Duration
	// UnknownDelay is how long a job of a type that has no handler stays away at first: 10 s; then ever longer.
	// UnknownLimit is when it fails: 24 h.
	UnknownDelay, UnknownLimit time.Duration
	// Hooks are called as things happen.
	Hooks Hooks
}

type handler struct {
	HandlerOptions
	run Handler
}

// Worker takes jobs and runs them.
type Worker struct {
	Options
	client   *Client
	handlers map[string]*handler
	raw      map[string]*handler
	names    []string
	values   context.Context
	place    string
	id       string
	host     string
	began    time.Time

	polls, beats, acks *servers

	stopOnce, hurryOnce sync.Once
	stopping, hurried   chan struct{}

	mu        sync.Mutex
	claims    map[*Job]bool // until their results are delivered
	running   map[*Job]bool
	stuck     map[*Job]bool // nobody waits for them, as over a time limit; their slots are taken until they return
	atHand    []*Job
	results   []*result
	unacked   int
	failure   error // of a worker that ends by itself
	isQuiet   bool
	isLeaving bool
	command   int64
	upMs      int64
	endPoll   context.CancelFunc
	prefetch  *prefetchPlan
	unknown   map[[2]string]*wire.UnknownType
	metAt     map[[2]string]time.Time
	logged    map[string]bool

	room      chan struct{} // the poller looks again
	beatNow   chan struct{} // the heartbeats do
	resultNow chan struct{}
}

// NewWorker makes a worker that connects as the client does. It panics where the options have no queue, or a weight
// below 1.
func NewWorker(client *Client, options Options) *Worker {
	if len(options.Queues) == 0 {
		panic("pinlater: a worker of no queues")
	}
	for queue, weight := range options.Queues {
		if weight < 1 {
			panic(fmt.Sprintf("pinlater: the weight of queue %s is %d; allowed: 1 and more", queue, weight))
		}
	}
	for _, each := range []struct {
		value *time.Duration
		other time.Duration
	}{
		{&options.Lease, defaultLease}, {&options.Grace, defaultGrace}, {&options.Prefetch, defaultPrefetch},
		{&options.UnknownDelay, defaultUnknownDelay}, {&options.UnknownLimit, defaultUnknownLimit},
	} {
		if *each.value == 0 {
			*each.value = each.other
		}
	}
	if options.Slots == 0 {
		options.Slots = defaultSlots
	}
	host, _ := os.Hostname()
	name := os.Args[0][strings.LastIndex(os.Args[0], "/")+1:]
	options.Name = firstOf(options.Name, name)
	options.Hooks = options.Hooks.guarded(client.log)
	w := &Worker{
		Options: options, client: client, handlers: map[string]*handler{}, raw: map[string]*handler{},
		host: host, place: fmt.Sprintf("%s:%d", host, os.Getpid()), id: randomText(8),
		stopping: make(chan struct{}), hurried: make(chan struct{}),
		unknown: map[[2]string]*wire.UnknownType{}, metAt: map[[2]string]time.Time{},
		claims: map[*Job]bool{}, running: map[*Job]bool{}, stuck: map[*Job]bool{}, logged: map[string]bool{},
		room: make(chan struct{}, 1), beatNow: make(chan struct{}, 1), resultNow: make(chan struct{}, 1),
		prefetch: newPrefetchPlan(options.Queues, options.Slots, options.Prefetch),
	}
	return w
}

// Handle says what runs the jobs of that name. It is called before Run.
func (w *Worker) Handle(name string, run Handler, options ...HandlerOptions) {
	w.handlers[name] = newHandler(run, options)
	w.names = append(w.names, name)
	sort.Strings(w.names)
}

// HandleRaw says what runs the jobs of a queue whose bodies are not the framework's: Job.Body has all their bytes.
func (w *Worker) HandleRaw(queue string, run Handler, options ...HandlerOptions) {
	w.raw[queue] = newHandler(run, options)
}

func newHandler(run Handler, options []HandlerOptions) *handler {
	made := &handler{run: run}
	if len(options) > 0 {
		made.HandlerOptions = options[0]
	}
	if made.Retry.Delay == nil {
		made.Retry = DefaultRetry()
	}
	if made.TimeLimit == 0 {
		made.TimeLimit = defaultTimeLimit
	}
	if made.MaxSnoozes == 0 {
		made.MaxSnoozes = defaultMaxSnoozes
	}
	return made
}

// Stop asks the worker to end: it takes no more jobs, and those that run have Grace to end. Called again, they have no
// time at all.
func (w *Worker) Stop() {
	again := true
	w.stopOnce.Do(func() { again = false; close(w.stopping) })
	if again {
		w.hurryOnce.Do(func() { close(w.hurried) })
	}
}

// fail ends the worker as Stop does, and is what Run returns.
func (w *Worker) fail(why error) {
	w.mu.Lock()
	w.failure = why
	w.mu.Unlock()
	w.client.log("%v", why)
	if !w.isStopping() {
		w.Stop()
	}
}

// RunUntilSignal is Run, and Stop at each SIGTERM and SIGINT.
func (w *Worker) RunUntilSignal(ctx context.Context) error {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	defer signal.Stop(signals)
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		for {
			select {
			case <-signals:
				w.Stop()
			case <-ended:
				return
			}
		}
	}()
	return w.Run(ctx)
}

// Run takes and runs jobs until Stop is called, the context ends (which is as one Stop), or an operator stops the
// worker. It returns when the results are delivered, and jobs that did not end in time are handed back. The error tells
// of results that no server took: those jobs run again; or that the servers do not know its token any more. Once.
//
// Jobs have the values of the context; their own contexts do not end with it.
func (w *Worker) Run(ctx context.Context) error {
	w.values, w.began = ctx, time.Now()
	w.polls = newServers(&w.client.config, w.client.tls, w.client.caller)
	w.beats = newServers(&w.client.config, w.client.tls, w.client.caller)
	w.acks = newServers(&w.client.config, w.client.tls, w.client.caller)
	defer w.acks.close()
	for _, each := range []*servers{w.polls, w.beats} {
		each.isLong, each.onBreak = true, w.keepClaims // claims are bound to them
		defer each.close()
	}
	polls, endPolls := context.WithCancel(context.Background())
	defer endPolls()
	others, endOthers := context.WithCancel(context.Background())
	defer endOthers()
	polled, beaten, acked := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() { defer close(polled); w.poll(polls) }()
	go func() { defer close(beaten); w.beat(others) }()
	go func() { defer close(acked); w.deliver(others) }()
	select {
	case <-ctx.Done():
		w.Stop()
	case <-w.stopping:
	}
	w.Hooks.Stopping()
	w.giveBack(w.takeAtHand())
	w.beatAll(others) // to other connections than those of the polls, which close now
	endPolls()
	<-polled
	w.drain()
	left := w.flush()
	endOthers()
	<-beaten
	<-acked
	last, cancel := context.WithTimeout(context.Background(), lastReport)
	defer cancel()
	w.report(last, true)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	if left > 0 {
		return fmt.Errorf("pinlater: the worker ends with %d results that no server took; those jobs run again", left)
	}
	return nil
}

// drain waits for the jobs that run, ends the contexts of those that take too long, and hands back what is left.
func (w *Worker) drain() {
	grace := time.NewTimer(w.Grace)
	defer grace.Stop()
	w.idle(grace.C, w.hurried)
	for _, job := range w.runningJobs() {
		job.stop(ErrStopped, "")
	}
	last := time.NewTimer(lastReturns)
	defer last.Stop()
	w.idle(last.C, nil)
	left := w.runningJobs()
	if len(left) > 0 {
		w.client.log("%d jobs did not end in time; they are handed back, and no attempt is spent", len(left))
	}
	for _, job := range left {
		w.ended(job.decide(nil, ErrStopped))
		w.left(job, true)
	}
}

// idle returns when no job runs, the time is over, or the worker is hurried.
func (w *Worker) idle(over <-chan time.Time, hurried <-chan struct{}) {
	for len(w.runningJobs()) > 0 {
		select {
		case <-w.room: // the poller has ended: a job has ended
		case <-over:
			return
		case <-hurried:
			return
		}
	}
}

func (w *Worker) runningJobs() []*Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs := make([]*Job, 0, len(w.running))
	for job := range w.running {
		jobs = append(jobs, job)
	}
	return jobs
}

func (w *Worker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// take gets jobs that were claimed: they begin, wait at hand, or cannot run here.
func (w *Worker) take(jobs []*Job) {
	sort.SliceStable(jobs, func(i, k int) bool {
		a, b := jobs[i], jobs[k]
		return a.Priority < b.Priority || a.Priority == b.Priority && a.runAfterMs < b.runAfterMs
	})
	var back []*result
	w.mu.Lock()
	for _, job := range jobs {
		if unable := w.load(job); unable != nil {
			back = append(back, unable)
		} else if w.isStopping() {
			back = append(back, handBack(job))
		} else {
			w.atHand = append(w.atHand, job)
		}
	}
	w.begin()
	waits := len(w.atHand) > 0
	w.mu.Unlock()
	if waits {
		time.AfterFunc(2*w.Prefetch, w.giveBackOverdue)
	}
	w.put(back...)
}

// load finds the handler; where there is none, what becomes of the job.
func (w *Worker) load(job *Job) *result {
	found, err := readEnvelope(job.Body)
	if err != nil {
		w.client.log("job %s failed, no attempt follows: %v", job.Descriptor, err)
		return job.failed(err, -1)
	}
	if found == nil {
		job.handler = w.raw[job.Queue]
	} else {
		job.envelope, job.Name, job.Headers, job.Snoozes = found, found.Job, found.Headers, found.Snoozes
		job.handler = w.handlers[found.Job]
	}
	if job.handler == nil {
		return &result{job: job, outcome: OutcomeHandedBack, requeue: true, isUnknown: true}
	}
	return nil
}

// begin starts jobs at hand in free slots. Under the lock.
func (w *Worker) begin() {
	for len(w.atHand) > 0 && len(w.running)+len(w.stuck) < w.Slots {
		job := w.atHand[0]
		w.atHand = w.atHand[1:]
		job.began = time.Now()
		w.running[job] = true
		go w.run(job)
	}
}

// ended gets the result of a job that ran. One that was handed back or over its time limit meanwhile has one already.
func (w *Worker) ended(made *result) {
	job := made.job
	w.mu.Lock()
	if job.isDone {
		w.mu.Unlock()
		return
	}
	job.isDone = true
	took := time.Since(job.began)
	w.prefetch.ended(job.Queue, took)
	w.mu.Unlock()
	w.Hooks.End(job, made.outcome, took)
	if made.outcome == OutcomeLost {
		w.forget(job)
	} else {
		w.put(made)
	}
}

// overLimit: the attempt has failed, whatever its handler does. It keeps its slot, and nobody else waits for it.
func (w *Worker) overLimit(job *Job) {
	w.ended(job.decideSafely(nil, timeLimitExceeded(job.handler.TimeLimit)))
	job.stop(ErrTimeLimit, "")
	w.left(job, true)
}

// left: nobody waits for the job any more, whose slot is free, unless its handler is stuck.
func (w *Worker) left(job *Job, isStuck bool) {
	w.mu.Lock()
	if isStuck && w.running[job] { // else it has returned meanwhile
		w.stuck[job] = true
	} else {
		delete(w.stuck, job)
	}
	delete(w.running, job)
	w.begin()
	leaves := w.isLeaving && len(w.running) == 0
	w.mu.Unlock()
	if leaves && !w.isStopping() {
		w.Stop()
	}
	wake(w.room)
}

func (w *Worker) takeAtHand() []*Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	jobs := w.atHand
	w.atHand = nil
	return jobs
}

// discard takes a job out of those at hand; it tells whether it was there. Under the lock.
func (w *Worker) discard(job *Job) bool {
	for i, each := range w.atHand {
		if each == job {
			w.atHand = append(w.atHand[:i:i], w.atHand[i+1:]...)
			job.isDone = true
			return true
		}
	}
	return false
}

// giveBackOverdue hands back what has waited here for too long: another worker may have a slot.
func (w *Worker) giveBackOverdue() {
	var overdue []*Job
	w.mu.Lock()
	since := time.Now().Add(-2 * w.Prefetch)
	for len(w.atHand) > 0 && w.atHand[0].arrived.Before(since) {
		overdue = append(overdue, w.atHand[0])
		w.prefetch.handedBack(w.atHand[0].Queue)
		w.atHand = w.atHand[1:]
	}
	w.mu.Unlock()
	w.giveBack(overdue)
}

func (w *Worker) giveBack(jobs []*Job) {
	for _, job := range jobs {
		w.put(handBack(job))
	}
}

// forget: nothing is to be delivered for its claim any more.
func (w *Worker) forget(jobs ...*Job) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, job := range jobs {
		delete(w.claims, job)
	}
}

func (w *Worker) queue() string { // any of its own
	for queue := range w.Queues {
		return queue
	}
	return ""
}

// logOnce logs what would be said again and again, once until it is over.
func (w *Worker) logOnce(about, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.logged[about] {
		w.logged[about] = true
		w.client.log("%s", text)
	}
}

func (w *Worker) logOver(about, text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.logged[about] {
		delete(w.logged, about)
		w.client.log("%s", text)
	}
}

func (c *Client) log(format string, values ...any) {
	if c.config.Log != nil {
		c.config.Log(format, values...)
	} else {
		log.Printf("pinlater: "+format, values...)
	}
}

func wake(waiting chan struct{}) {
	select {
	case waiting <- struct{}{}:
	default:
	}
}
