package pinlater_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pinlater "pinlater/workers/go"
)

func options(queue string) pinlater.Options {
	return pinlater.Options{Queues: map[string]int{queue: 1}, Lease: 6 * time.Second, Grace: 10 * time.Second}
}

func TestAJobGetsItsArgumentsAndLeavesItsResult(t *testing.T) {
	client, queue := prepare(t)
	worker := pinlater.NewWorker(client, options(queue))
	worker.Handle("greet", func(_ context.Context, job *pinlater.Job) (any, error) {
		var kwargs struct{ Name string }
		var first, second string
		if err := job.Bind(&kwargs); err != nil {
			return nil, err
		}
		if err := job.BindArgs(&first, &second); err != nil {
			return nil, err
		}
		return map[string]string{"text": first + kwargs.Name + second}, nil
	})
	running(t, worker)
	text := "äöü 漢字 \U0001F600 \u2028 <&> \x00\x1f\""
	job := enqueue(t, client, queue, pinlater.JobSpec{
		Name: "greet", Args: []any{"Hello, ", "!"}, Kwargs: map[string]string{"name": text}, KeepResult: true,
	})
	info := waitFor(t, client, job)
	var result map[string]string
	if err := info.Result(&result); err != nil || info.State != pinlater.Succeeded {
		t.Fatal(info, err)
	}
	if want := "Hello, " + text + "!"; result["text"] != want {
		t.Errorf("%q, not %q", result["text"], want)
	}
	if info := waitFor(t, client, enqueue(t, client, queue, pinlater.JobSpec{Name: "greet"})); info.HasResult() {
		t.Error("a result that nobody asked for")
	}
}

func TestARawJobGetsAllItsBytes(t *testing.T) {
	client, queue := prepare(t)
	got := make(chan []byte, 2)
	worker := pinlater.NewWorker(client, options(queue))
	worker.HandleRaw(queue, func(_ context.Context, job *pinlater.Job) (any, error) {
		got <- job.Body
		return nil, nil
	})
	running(t, worker)
	var all []byte
	for i := 0; i < 256; i++ {
		all = append(all, byte(i))
	}
	for _, body := range [][]byte{all, bytes.Repeat(all, 900*4)} {
		enqueue(t, client, queue, pinlater.JobSpec{Body: body})
		if !bytes.Equal(receive(t, got), body) {
			t.Error("other bytes, of ", len(body))
		}
	}
}

func TestHowAHandlerEndsIsHowTheJobEnds(t *testing.T) {
	client, queue := prepare(t)
	var mu sync.Mutex
	ends := map[string][]pinlater.Outcome{}
	hooked := options(queue)
	hooked.Hooks.End = func(job *pinlater.Job, outcome pinlater.Outcome, _ time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		ends[job.Descriptor] = append(ends[job.Descriptor], outcome)
	}
	worker := pinlater.NewWorker(client, hooked)
	soon := pinlater.HandlerOptions{Retry: pinlater.ConstantRetry(10 * time.Millisecond)}
	handle := func(name string, run func(job *pinlater.Job) (any, error), how pinlater.HandlerOptions) {
		worker.Handle(name, func(_ context.Context, job *pinlater.Job) (any, error) { return run(job) }, how)
	}
	handle("once", func(job *pinlater.Job) (any, error) {
		if job.Attempt == 1 {
			return nil, errors.New("not yet\n\x1b[2J")
		}
		return nil, nil
	}, soon)
	handle("fail", func(*pinlater.Job) (any, error) { return nil, fmt.Errorf("so: %w", pinlater.Fail("for good")) }, soon)
	handle("panic", func(*pinlater.Job) (any, error) { panic("at the disco") }, pinlater.HandlerOptions{Retry: pinlater.NoRetry()})
	handle("after", func(job *pinlater.Job) (any, error) {
		if job.Attempt == 1 {
			return nil, pinlater.RetryAfter(10*time.Millisecond, nil)
		}
		return nil, nil
	}, pinlater.HandlerOptions{})
	handle("snooze", func(job *pinlater.Job) (any, error) {
		if job.Snoozes < 2 {
			return nil, pinlater.Snooze(10 * time.Millisecond)
		}
		if job.Attempt != 1 || string(job.Headers["h"]) != "<&>" {
			return nil, pinlater.Fail("it is another job")
		}
		return nil, nil
	}, pinlater.HandlerOptions{})
	handle("tired", func(*pinlater.Job) (any, error) { return nil, pinlater.Snooze(0) }, pinlater.HandlerOptions{MaxSnoozes: 1})
	handle("secret", func(*pinlater.Job) (any, error) { return nil, pinlater.Fail("the password is swordfish") }, soon)
	handle("two", func(*pinlater.Job) (any, error) { return nil, errors.New("again") }, pinlater.HandlerOptions{Retry: soon.Retry, Attempts: 2})
	running(t, worker)
	tests := []struct {
		job   pinlater.JobSpec
		state string
		ends  string
		text  string
	}{
		{pinlater.JobSpec{Name: "once"}, "succeeded", "[retry succeeded]", "attempt 1 of 11: not yet  [2J ["},
		{pinlater.JobSpec{Name: "fail"}, "failed", "[failed]", "attempt 1 of 11: so: for good ["},
		{pinlater.JobSpec{Name: "panic"}, "failed", "[failed]", "worker_test.go"},
		{pinlater.JobSpec{Name: "after"}, "succeeded", "[retry succeeded]", "to be tried again"},
		{pinlater.JobSpec{Name: "snooze", Headers: map[string]string{"h": "<&>"}}, "succeeded", "[snoozed snoozed succeeded]", "snooze 2 of 100\nsnooze 1 of 100"},
		{pinlater.JobSpec{Name: "tired"}, "failed", "[snoozed failed]", "put off 1 times"},
		{pinlater.JobSpec{Name: "secret", Kwargs: map[string]any{"p": []string{"swordfish"}}, Headers: map[string]string{"pinlater-secret": "p"}}, "failed", "[failed]", "the password is *** ["},
		{pinlater.JobSpec{Name: "two"}, "failed", "[retry failed]", "attempt 2 of 11"},
		{pinlater.JobSpec{Name: "two", Attempts: 1}, "failed", "[retry]", "attempt 1 of 1"},
	}
	for _, each := range tests {
		job := enqueue(t, client, queue, each.job)
		info := waitFor(t, client, job)
		mu.Lock()
		ended := fmt.Sprint(ends[job])
		mu.Unlock()
		if info.State != each.state || ended != each.ends || !strings.Contains(info.Status, each.text) {
			t.Errorf("%s: %s %s %q; not %s %s %q", each.job.Name, info.State, ended, info.Status, each.state, each.ends, each.text)
		}
	}
}

func TestAJobOfAnUnknownTypeIsHandedBackAndSaysSo(t *testing.T) {
	client, queue := prepare(t)
	quick := options(queue)
	quick.UnknownDelay = 100 * time.Millisecond
	running(t, pinlater.NewWorker(client, quick))
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "resize"})
	var info *pinlater.JobInfo
	until(t, "the status says that nobody knows it", func() bool {
		var err error
		info, err = client.Lookup(background(t), job)
		return err == nil && strings.Contains(info.Status, "not run: type resize, unknown to the workers of queue "+queue)
	})
	worker := pinlater.NewWorker(client, options(queue))
	worker.Handle("resize", func(context.Context, *pinlater.Job) (any, error) { return nil, nil })
	running(t, worker)
	if info = waitFor(t, client, job); info.State != pinlater.Succeeded || info.AttemptsLeft < 10 || strings.Count(info.Status, "not run") != 1 {
		t.Error(info)
	}
}

func TestABodyThatCannotBeReadFails(t *testing.T) {
	client, queue := prepare(t)
	worker := pinlater.NewWorker(client, options(queue))
	worker.HandleRaw(queue, func(context.Context, *pinlater.Job) (any, error) { return nil, nil })
	running(t, worker)
	job := enqueue(t, client, queue, pinlater.JobSpec{Body: []byte("PINLATER/1 application/json\n{")})
	if info := waitFor(t, client, job); info.State != pinlater.Failed || !strings.Contains(info.Status, "cannot be read") {
		t.Error(info)
	}
}

func TestProgressAndLogAreSeenWhileAJobRuns(t *testing.T) {
	client, queue := prepare(t)
	worker := pinlater.NewWorker(client, options(queue))
	goOn := make(chan struct{})
	worker.Handle("long", func(_ context.Context, job *pinlater.Job) (any, error) {
		job.Progress(0.25, "page 5")
		job.Log("one")
		job.Log("one")
		<-goOn
		job.Progress(1, "done")
		job.Log("two")
		return nil, nil
	})
	running(t, worker)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "long"})
	until(t, "progress is there", func() bool {
		info, err := client.Lookup(background(t), job)
		return err == nil && info.HasProgress && info.Fraction == 0.25 && info.Text == "page 5" && fmt.Sprint(info.Log) == "[one one]"
	})
	close(goOn)
	if info := waitFor(t, client, job); info.Fraction != 1 || info.Text != "done" || fmt.Sprint(info.Log) != "[one one two]" {
		t.Error(info)
	}
}

func TestACancelReachesTheHandler(t *testing.T) {
	client, queue := prepare(t)
	begun, told := make(chan *pinlater.Job, 1), make(chan string, 1)
	hooked := options(queue)
	hooked.Hooks.Cancel = func(_ *pinlater.Job, by string) { told <- by }
	worker := pinlater.NewWorker(client, hooked)
	worker.Handle("long", func(ctx context.Context, job *pinlater.Job) (any, error) {
		begun <- job
		<-ctx.Done()
		return nil, ctx.Err()
	})
	running(t, worker)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "long"})
	attempt := receive(t, begun)
	if done, err := client.Cancel(background(t), job); err != nil || !done {
		t.Fatal(done, err)
	}
	by := receive(t, told)
	info := waitFor(t, client, job)
	if info.State != pinlater.Cancelled || attempt.Cause() != pinlater.ErrCancelled || by == "" || !strings.Contains(info.Status, "cancelled by "+by) {
		t.Error(info, attempt.Cause(), by)
	}
}

func TestAnAttemptOverItsTimeLimitHasFailedAndItsSlotIsTakenUntilItsHandlerReturns(t *testing.T) {
	client, queue := prepare(t)
	causes, begun, let := make(chan error, 1), make(chan struct{}), make(chan struct{})
	ends := make(chan pinlater.Outcome, 3)
	policy := make(chan error, 2)
	how := options(queue)
	how.Slots = 1
	how.Name = "kit-" + queue
	how.Hooks.End = func(_ *pinlater.Job, outcome pinlater.Outcome, _ time.Duration) { ends <- outcome }
	worker := pinlater.NewWorker(client, how)
	limited := pinlater.HandlerOptions{TimeLimit: 100 * time.Millisecond, Retry: pinlater.Retry{
		Retries: 10, Delay: func(_ int, err error) time.Duration { policy <- err; return -1 },
	}}
	worker.Handle("heeds", func(ctx context.Context, job *pinlater.Job) (any, error) {
		<-ctx.Done()
		causes <- job.Cause()
		return nil, ctx.Err()
	}, limited)
	worker.Handle("stubborn", func(context.Context, *pinlater.Job) (any, error) { <-let; return nil, nil }, limited)
	worker.Handle("quick", func(context.Context, *pinlater.Job) (any, error) {
		close(begun)
		return nil, nil
	}, pinlater.HandlerOptions{TimeLimit: -1})
	running(t, worker)
	for _, name := range []string{"heeds", "stubborn"} {
		info := waitFor(t, client, enqueue(t, client, queue, pinlater.JobSpec{Name: name}))
		if info.State != pinlater.Failed || !strings.HasPrefix(info.Status, "attempt 1 of 11: TimeLimitExceeded: it ran longer than 0.1 s [") {
			t.Error(info)
		}
		if err := receive(t, policy); !errors.Is(err, pinlater.ErrTimeLimit) {
			t.Error(err)
		}
		if outcome := receive(t, ends); outcome != pinlater.OutcomeFailed {
			t.Error(outcome)
		}
	}
	if cause := receive(t, causes); cause != pinlater.ErrTimeLimit {
		t.Error(cause)
	}
	quick := enqueue(t, client, queue, pinlater.JobSpec{Name: "quick"})
	until(t, "a slot is stuck", func() bool {
		return strings.Contains(shared.server.command("worker", "list", "--name", how.Name), "1 stuck")
	})
	select {
	case <-begun:
		t.Error("a job has begun in a slot that is taken")
	default:
	}
	close(let)
	if info := waitFor(t, client, quick); info.State != pinlater.Succeeded {
		t.Error(info)
	}
	if outcome := receive(t, ends); outcome != pinlater.OutcomeSucceeded || len(ends) != 0 { // nothing of the stubborn one
		t.Error(outcome, len(ends))
	}
}

func TestAHandlerThatIsStuckOverItsTimeLimitKeepsNoWorkerFromItsEnd(t *testing.T) {
	client, queue := prepare(t)
	how := options(queue)
	how.Grace = time.Hour
	worker := pinlater.NewWorker(client, how)
	forever := make(chan struct{})
	defer close(forever)
	worker.Handle("stubborn", func(context.Context, *pinlater.Job) (any, error) { <-forever; return nil, nil },
		pinlater.HandlerOptions{TimeLimit: 100 * time.Millisecond})
	ended := running(t, worker)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "stubborn"})
	until(t, "its attempt has failed", func() bool {
		info, err := client.Lookup(background(t), job)
		return err == nil && strings.Contains(info.Status, "TimeLimitExceeded") && info.AttemptsLeft == 10
	})
	worker.Stop()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}

func TestAWorkerThatStopsLetsJobsEndAndHandsBackTheRest(t *testing.T) {
	client, queue := prepare(t)
	slow := options(queue)
	slow.Grace = 300 * time.Millisecond
	worker := pinlater.NewWorker(client, slow)
	begun := make(chan struct{}, 3)
	worker.Handle("short", func(ctx context.Context, job *pinlater.Job) (any, error) {
		begun <- struct{}{}
		<-job.Stopping()
		return nil, ctx.Err()
	})
	worker.Handle("long", func(ctx context.Context, _ *pinlater.Job) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	forever := make(chan struct{})
	defer close(forever)
	worker.Handle("stubborn", func(context.Context, *pinlater.Job) (any, error) {
		begun <- struct{}{}
		<-forever
		return nil, nil
	})
	ended := running(t, worker)
	var jobs []string
	for _, name := range []string{"short", "long", "stubborn"} {
		jobs = append(jobs, enqueue(t, client, queue, pinlater.JobSpec{Name: name}))
		receive(t, begun)
	}
	worker.Stop()
	if err := receive(t, ended); err != nil {
		t.Fatal(err)
	}
	for i, state := range []string{pinlater.Succeeded, pinlater.Pending, pinlater.Pending} {
		info, err := client.Lookup(background(t), jobs[i])
		if err != nil || info.State != state || info.AttemptsLeft < 10 {
			t.Error(i, info, err)
		}
	}
}

func TestASecondStopHurries(t *testing.T) {
	client, queue := prepare(t)
	slow := options(queue)
	slow.Grace = time.Hour
	worker := pinlater.NewWorker(client, slow)
	begun := make(chan struct{}, 1)
	worker.Handle("long", func(ctx context.Context, _ *pinlater.Job) (any, error) {
		begun <- struct{}{}
		<-ctx.Done()
		return nil, ctx.Err()
	})
	ended := running(t, worker)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "long"})
	receive(t, begun)
	worker.Stop()
	worker.Stop()
	if err := receive(t, ended); err != nil {
		t.Fatal(err)
	}
	if info, err := client.Lookup(background(t), job); err != nil || info.State != pinlater.Pending || info.AttemptsLeft != pinlater.DefaultAttempts {
		t.Error(info, err)
	}
}

func TestManyJobsOfSeveralQueuesRunOnce(t *testing.T) {
	client, queue := prepare(t)
	other := newQueue(t, client)
	many := options(queue)
	many.Queues, many.Slots = map[string]int{queue: 3, other: 1}, 20
	var count atomic.Int64
	seen := sync.Map{}
	worker := pinlater.NewWorker(client, many)
	worker.Handle("quick", func(_ context.Context, job *pinlater.Job) (any, error) {
		if _, again := seen.LoadOrStore(job.Descriptor, true); again {
			t.Error("twice: ", job.Descriptor)
		}
		count.Add(1)
		return nil, nil
	})
	var jobs []string
	for i := 0; i < 10; i++ {
		for _, into := range []string{queue, other} {
			descriptors, err := client.EnqueueMany(background(t), into, make100())
			if err != nil {
				t.Fatal(err)
			}
			jobs = append(jobs, descriptors...)
		}
	}
	ended := running(t, worker)
	until(t, "all have run", func() bool { return count.Load() == int64(len(jobs)) })
	worker.Stop()
	if err := receive(t, ended); err != nil {
		t.Fatal(err)
	}
	for _, job := range jobs[:50] {
		if info := waitFor(t, client, job); info.State != pinlater.Succeeded {
			t.Error(info)
		}
	}
}

func make100() []pinlater.JobSpec {
	jobs := make([]pinlater.JobSpec, 100)
	for i := range jobs {
		jobs[i].Name = "quick"
	}
	return jobs
}

func TestAQueueThatIsNotThereHoldsUpNoOther(t *testing.T) {
	client, queue := prepare(t)
	two := options(queue)
	two.Queues["go_later"] = 5
	worker := pinlater.NewWorker(client, two)
	worker.Handle("quick", func(context.Context, *pinlater.Job) (any, error) { return nil, nil })
	running(t, worker)
	waitFor(t, client, enqueue(t, client, queue, pinlater.JobSpec{Name: "quick"}))
	if err := client.CreateQueue(background(t), "go_later"); err != nil {
		t.Fatal(err)
	}
	waitFor(t, client, enqueue(t, client, "go_later", pinlater.JobSpec{Name: "quick"}))
}

func TestAWorkerWhoseSlotsAreTakenLeavesTheServerAlone(t *testing.T) {
	client, queue := prepare(t)
	var polls atomic.Int64
	how := options(queue)
	how.Slots = 2
	how.Hooks.Dequeued = func(int, time.Duration) { polls.Add(1) }
	worker := pinlater.NewWorker(client, how)
	begun, let := make(chan struct{}, 2), make(chan struct{})
	worker.Handle("quick", func(context.Context, *pinlater.Job) (any, error) { return nil, nil })
	worker.Handle("long", func(context.Context, *pinlater.Job) (any, error) {
		begun <- struct{}{}
		<-let
		return nil, nil
	})
	running(t, worker)
	descriptors, err := client.EnqueueMany(background(t), queue, make100())
	if err != nil {
		t.Fatal(err)
	}
	for _, job := range descriptors { // from now on quick jobs are expected, and fetched ahead
		waitFor(t, client, job)
	}
	for i := 0; i < 2; i++ {
		enqueue(t, client, queue, pinlater.JobSpec{Name: "long"})
		receive(t, begun)
	}
	time.Sleep(200 * time.Millisecond)
	before := polls.Load()
	time.Sleep(500 * time.Millisecond)
	if more := polls.Load() - before; more > 2 {
		t.Error("polls while no slot is free: ", more)
	}
	third := enqueue(t, client, queue, pinlater.JobSpec{Name: "long"})
	if info, err := client.Lookup(background(t), third); err != nil || info.State != pinlater.Pending {
		t.Error("a third job is kept from other workers: ", info, err)
	}
	close(let)
	waitFor(t, client, third)
}

// broken is an error that cannot be asked for its text while it is nil.
type broken struct{ text string }

func (b *broken) Error() string { return b.text }

// unwritable cannot be made JSON.
type unwritable struct{}

func (unwritable) MarshalJSON() ([]byte, error) { panic("no JSON of this") }

func TestWhatCannotBeReportedFailsTheAttemptAlone(t *testing.T) {
	client, queue := prepare(t)
	worker := pinlater.NewWorker(client, options(queue))
	once := pinlater.HandlerOptions{Attempts: 1, KeepResult: true}
	worker.Handle("error", func(context.Context, *pinlater.Job) (any, error) { return nil, (*broken)(nil) }, once)
	worker.Handle("result", func(context.Context, *pinlater.Job) (any, error) { return unwritable{}, nil }, once)
	worker.Handle("panic", func(context.Context, *pinlater.Job) (any, error) { panic((*broken)(nil)) }, once)
	worker.Handle("exit", func(context.Context, *pinlater.Job) (any, error) { runtime.Goexit(); return nil, nil }, once)
	running(t, worker)
	for _, name := range []string{"error", "result", "panic", "exit"} {
		info := waitFor(t, client, enqueue(t, client, queue, pinlater.JobSpec{Name: name}))
		if info.State != pinlater.Failed || !strings.Contains(info.Status, "attempt 1 of 11: panic") {
			t.Error(name, info)
		}
	}
}

func TestAResultForAQueueThatIsDeletedKeepsNoWorkerFromItsEnd(t *testing.T) {
	client, _ := prepare(t)
	queue := newQueue(t, client)
	begun, end := make(chan struct{}), make(chan struct{})
	worker := pinlater.NewWorker(client, options(queue))
	worker.Handle("hold", func(context.Context, *pinlater.Job) (any, error) { close(begun); <-end; return nil, nil })
	ended := running(t, worker)
	enqueue(t, client, queue, pinlater.JobSpec{Name: "hold"})
	receive(t, begun)
	shared.server.command("queue", "delete", queue, "--yes")
	close(end)
	worker.Stop()
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
}
