package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	pinlater "pinlater/workers/go"
)

// ledger is a file that several processes add lines to.
type ledger struct {
	mu   sync.Mutex
	file *os.File
	name string
}

func (l *ledger) write(event string, more answer) {
	line := answer{"at_ms": time.Now().UnixMilli(), "worker": l.name, "event": event}
	for key, value := range more {
		line[key] = value
	}
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, err := l.file.Write(append(text, '\n')); err != nil {
		panic(err)
	}
}

func work(ctx context.Context, client *pinlater.Client, config config) error {
	file, err := os.OpenFile(config.Ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	book := &ledger{file: file, name: config.Name}
	drain := time.Duration(config.DrainMs) * time.Millisecond
	if config.DrainMs == 0 {
		drain = -1
	}
	note := func(event string, more answer) {
		book.write(event, more)
		if config.FailingHooks {
			panic("this hook fails")
		}
	}
	worker := pinlater.NewWorker(client, pinlater.Options{
		Queues: config.Queues, Slots: config.Slots, Name: config.Name, Grace: drain,
		Hooks: pinlater.Hooks{
			Started: func() { note("started", nil) },
			Begin:   func(job *pinlater.Job) { note("hooked", answer{"job": job.Descriptor}) },
			End: func(job *pinlater.Job, outcome pinlater.Outcome, _ time.Duration) {
				note("end", answer{"job": job.Descriptor, "outcome": outcome})
			},
			Cancel:   func(job *pinlater.Job, _ string) { note("cancel", answer{"job": job.Descriptor}) },
			Lost:     func(job *pinlater.Job) { note("lost", answer{"job": job.Descriptor}) },
			Dequeued: func(int, time.Duration) { note("dequeued", nil) },
			Acked:    func(int, int) { note("acked", nil) },
			Stopping: func() { note("draining", nil) },
		},
	})
	for name, handler := range handlers() {
		run := handler
		how := pinlater.HandlerOptions{}
		if strings.HasPrefix(name, "trial.limited") {
			how.TimeLimit = time.Second
		}
		worker.Handle(name, func(ctx context.Context, job *pinlater.Job) (any, error) {
			var kwargs arguments
			var all map[string]any
			for _, each := range []any{&kwargs, &all} {
				if err := job.Bind(each); err != nil {
					return nil, err
				}
			}
			book.write("begin", answer{"job": job.Descriptor, "name": job.Name, "arguments": all, "attempt": job.Attempt})
			value, err := run(ctx, job, kwargs)
			if how.TimeLimit > 0 {
				why := map[error]string{pinlater.ErrTimeLimit: "time_limit"}[job.Cause()]
				book.write("returned", answer{"job": job.Descriptor, "why": why})
			}
			return value, err
		}, how)
	}
	for _, queue := range config.RawQueues {
		worker.HandleRaw(queue, func(ctx context.Context, job *pinlater.Job) (any, error) {
			sum := sha256.Sum256(job.Body)
			book.write("begin", answer{
				"job": job.Descriptor, "name": nil, "sha256": hex.EncodeToString(sum[:]), "length": len(job.Body),
				"attempt": job.Attempt,
			})
			return nil, nil
		})
	}
	if err := worker.RunUntilSignal(ctx); err != nil {
		return err
	}
	book.write("stopped", nil)
	return nil
}

type arguments struct {
	Ms      int64           `json:"ms"`
	Message string          `json:"message"`
	Percent float64         `json:"percent"`
	Lines   []string        `json:"lines"`
	Value   json.RawMessage `json:"value"`
}

func (a arguments) wait() time.Duration { return time.Duration(a.Ms) * time.Millisecond }

type jobFunc func(ctx context.Context, job *pinlater.Job, kwargs arguments) (any, error)

func handlers() map[string]jobFunc {
	succeed := func(context.Context, *pinlater.Job, arguments) (any, error) { return nil, nil }
	sleep := func(ctx context.Context, _ *pinlater.Job, kwargs arguments) (any, error) {
		select {
		case <-time.After(kwargs.wait()):
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	stubborn := func(_ context.Context, _ *pinlater.Job, kwargs arguments) (any, error) {
		time.Sleep(kwargs.wait())
		return nil, nil
	}
	return map[string]jobFunc{
		"trial.noop": succeed, "trial.text": succeed, "trial.sleep": sleep, "trial.stubborn": stubborn,
		"trial.limited": sleep, "trial.limited_stubborn": stubborn,
		"trial.fail_once": func(_ context.Context, job *pinlater.Job, _ arguments) (any, error) {
			if job.Attempt == 1 {
				return nil, errors.New("the first attempt fails")
			}
			return nil, nil
		},
		"trial.raise": func(_ context.Context, _ *pinlater.Job, kwargs arguments) (any, error) {
			return nil, errors.New(kwargs.Message)
		},
		"trial.fail": func(_ context.Context, _ *pinlater.Job, kwargs arguments) (any, error) {
			return nil, pinlater.Fail(kwargs.Message)
		},
		"trial.retry_after": func(_ context.Context, job *pinlater.Job, kwargs arguments) (any, error) {
			if job.Attempt == 1 {
				return nil, pinlater.RetryAfter(kwargs.wait(), nil)
			}
			return nil, nil
		},
		"trial.snooze": func(_ context.Context, job *pinlater.Job, kwargs arguments) (any, error) {
			if job.Snoozes == 0 {
				return nil, pinlater.Snooze(kwargs.wait())
			}
			return nil, nil
		},
		"trial.progress": func(ctx context.Context, job *pinlater.Job, kwargs arguments) (any, error) {
			job.Progress(kwargs.Percent/100, kwargs.Message)
			return sleep(ctx, job, kwargs)
		},
		"trial.log": func(_ context.Context, job *pinlater.Job, kwargs arguments) (any, error) {
			for _, line := range kwargs.Lines {
				job.Log(line)
			}
			return nil, nil
		},
		"trial.result": func(_ context.Context, _ *pinlater.Job, kwargs arguments) (any, error) {
			return kwargs.Value, nil
		},
	}
}
