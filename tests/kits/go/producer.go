package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"time"

	pinlater "pinlater/workers/go"
)

type job struct {
	Queue   string         `json:"queue"`
	Name    string         `json:"name"`
	Kwargs  map[string]any `json:"kwargs"`
	Body    []byte         `json:"body_base64"`
	Options options        `json:"options"`
}

type options struct {
	DelayMs      int64  `json:"delay_ms"`
	Priority     int    `json:"priority"`
	Attempts     int    `json:"attempts"`
	DedupeKey    string `json:"dedupe_key"`
	SerializeKey string `json:"serialize_key"`
	Group        string `json:"group"`
	KeepResultMs int64  `json:"keep_result_ms"`
}

type command struct {
	Enqueue     *job  `json:"enqueue"`
	EnqueueMany []job `json:"enqueue_many"`
	Wait        *struct {
		Descriptor string `json:"descriptor"`
		TimeoutMs  int64  `json:"timeout_ms"`
	} `json:"wait"`
}

type answer map[string]any

// produce carries out a command for each line of standard input.
func produce(client *pinlater.Client) error {
	lines := bufio.NewReader(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return nil // its end
		}
		var asked command
		reader := json.NewDecoder(bytes.NewReader(line))
		reader.UseNumber() // numbers stay as they are written
		made, err := answer(nil), reader.Decode(&asked)
		if err == nil {
			made, err = carryOut(client, asked)
		}
		if err != nil {
			made = answer{"error": described(err)}
		}
		if err := answers.Encode(made); err != nil {
			return err
		}
	}
}

func described(err error) answer {
	var refused *pinlater.Error
	if errors.As(err, &refused) {
		return answer{"kind": refused.Reason, "message": refused.Message, "retryable": refused.Retryable}
	}
	kind := "error"
	if errors.Is(err, context.DeadlineExceeded) {
		kind = "timeout"
	} else if errors.Is(err, pinlater.ErrJobGone) {
		kind = "gone"
	}
	return answer{"kind": kind, "message": err.Error(), "retryable": kind == "timeout"}
}

func carryOut(client *pinlater.Client, asked command) (answer, error) {
	ctx := context.Background()
	switch {
	case asked.Enqueue != nil:
		descriptor, err := client.Enqueue(ctx, asked.Enqueue.Queue, asked.Enqueue.spec())
		return answer{"descriptor": descriptor}, err
	case len(asked.EnqueueMany) > 0:
		var specs []pinlater.JobSpec
		for _, each := range asked.EnqueueMany {
			specs = append(specs, each.spec())
		}
		descriptors, err := client.EnqueueMany(ctx, asked.EnqueueMany[0].Queue, specs)
		return answer{"descriptors": descriptors}, err
	case asked.Wait != nil:
		within, cancel := context.WithTimeout(ctx, time.Duration(asked.Wait.TimeoutMs)*time.Millisecond)
		defer cancel()
		info, err := client.Wait(within, asked.Wait.Descriptor)
		if err != nil {
			return nil, err
		}
		var result any
		if info.HasResult() {
			if err := info.Result(&result); err != nil {
				return nil, err
			}
		}
		return answer{"state": info.State, "result": result}, nil
	}
	return nil, errors.New("no such command")
}

func (j job) spec() pinlater.JobSpec {
	spec := pinlater.JobSpec{
		Name: j.Name, Body: j.Body, Delay: time.Duration(j.Options.DelayMs) * time.Millisecond,
		Priority: j.Options.Priority, Attempts: j.Options.Attempts, DedupeKey: j.Options.DedupeKey,
		SerializeKey: j.Options.SerializeKey, Group: j.Options.Group, KeepResult: j.Options.KeepResultMs > 0,
	}
	if j.Name != "" && j.Kwargs != nil {
		spec.Kwargs = j.Kwargs
	}
	return spec
}
