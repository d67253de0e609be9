package pinlater_test

import (
	"context"
	"fmt"
	"log"
	"time"

	pinlater "pinlater/workers/go"
)

func Example() {
	client, err := pinlater.NewClient(pinlater.Config{Servers: []string{"127.0.0.1:9010"}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	worker := pinlater.NewWorker(client, pinlater.Options{Queues: map[string]int{"pictures": 1}})
	worker.Handle("thumbnail", func(ctx context.Context, job *pinlater.Job) (any, error) {
		var picture struct {
			Path string
			Size int
		}
		if err := job.Bind(&picture); err != nil {
			return nil, pinlater.FailWith(err)
		}
		return nil, shrink(ctx, picture.Path, picture.Size)
	})
	if err := worker.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func ExampleNewClient() {
	client, err := pinlater.NewClient(pinlater.Config{
		Servers:   []string{"queue-1:9010", "queue-2:9010"},
		CAFile:    "ca.pem",
		TokenFile: "web.token",
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
}

func ExampleClient_Enqueue() {
	client, err := pinlater.NewClient(pinlater.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	descriptor, err := client.Enqueue(context.Background(), "pictures", pinlater.JobSpec{
		Name:   "thumbnail",
		Kwargs: map[string]any{"path": "a.jpg", "size": 200},
		Delay:  time.Minute,
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(descriptor)
}

func ExampleClient_EnqueueMany() {
	client, err := pinlater.NewClient(pinlater.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	_, err = client.EnqueueMany(context.Background(), "pictures", []pinlater.JobSpec{
		{Name: "thumbnail", Kwargs: map[string]any{"path": "a.jpg", "size": 200}, Group: "tenant-7"},
		{Name: "thumbnail", Kwargs: map[string]any{"path": "b.jpg", "size": 200}, Group: "tenant-7"},
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Wait() {
	client, err := pinlater.NewClient(pinlater.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	descriptor, err := client.Enqueue(ctx, "reports", pinlater.JobSpec{Name: "sum", Args: []any{2, 3}, KeepResult: true})
	if err != nil {
		log.Fatal(err)
	}
	info, err := client.Wait(ctx, descriptor)
	if err != nil {
		log.Fatal(err)
	}
	var sum int
	if err := info.Result(&sum); err != nil {
		log.Fatal(info.State, info.Status)
	}
	fmt.Println(sum)
}

func ExampleWorker_Handle() {
	client, err := pinlater.NewClient(pinlater.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	worker := pinlater.NewWorker(client, pinlater.Options{Queues: map[string]int{"mail": 3, "reports": 1}, Slots: 32})
	worker.Handle("send", func(ctx context.Context, job *pinlater.Job) (any, error) {
		var letter struct{ Address string }
		if err := job.Bind(&letter); err != nil {
			return nil, pinlater.FailWith(err) // no attempt would mend it
		}
		switch isBusy, err := deliver(ctx, letter.Address); {
		case isBusy:
			return nil, pinlater.RetryAfter(time.Minute, err)
		case err != nil:
			return nil, err // the retry policy decides
		}
		job.Progress(1, "delivered")
		return nil, nil
	}, pinlater.HandlerOptions{Retry: pinlater.ExponentialRetry(time.Second), Attempts: 6, TimeLimit: time.Minute})
	if err := worker.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func ExampleWorker_HandleRaw() {
	client, err := pinlater.NewClient(pinlater.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	worker := pinlater.NewWorker(client, pinlater.Options{Queues: map[string]int{"bytes": 1}})
	worker.HandleRaw("bytes", func(_ context.Context, job *pinlater.Job) (any, error) {
		fmt.Println(len(job.Body))
		return nil, nil
	})
	if err := worker.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func shrink(context.Context, string, int) error { return nil }

func deliver(context.Context, string) (isBusy bool, err error) { return false, nil }
