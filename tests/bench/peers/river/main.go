// The jobs on River, one program for all that the measure does with them:
//
//	river migrate          makes its tables
//	river work [-slots N]  works on the queues of BENCH_QUEUES; each job writes a line of the record (record.py)
//	river send             inserts a batch for each line on standard input, "QUEUE NANOSECONDS...", and answers with a line
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type noop struct {
	Queue  int   `json:"queue"`
	SentNs int64 `json:"sent_ns"`
}

func (noop) Kind() string { return "noop" }

type worker struct {
	river.WorkerDefaults[noop]
	record *os.File
}

func (w *worker) Work(_ context.Context, job *river.Job[noop]) error {
	line := make([]byte, 20)
	binary.LittleEndian.PutUint32(line, uint32(job.Args.Queue))
	binary.LittleEndian.PutUint64(line[4:], uint64(job.Args.SentNs))
	binary.LittleEndian.PutUint64(line[12:], uint64(time.Now().UnixNano()))
	_, err := w.record.Write(line)
	return err
}

func main() {
	if len(os.Args) < 2 {
		log.Fatal("migrate, work or send")
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	queues := strings.Split(os.Getenv("BENCH_QUEUES"), ",")
	switch os.Args[1] {
	case "migrate":
		err = migrate(ctx, pool)
	case "work":
		flags := flag.NewFlagSet("work", flag.ExitOnError)
		slots := flags.Int("slots", 100, "jobs at a time, as in the examples of River")
		_ = flags.Parse(os.Args[2:])
		err = work(ctx, pool, queues, *slots)
	case "send":
		err = send(ctx, pool, queues)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func migrate(ctx context.Context, pool *pgxpool.Pool) error {
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

func work(ctx context.Context, pool *pgxpool.Pool, queues []string, slots int) error {
	record, err := os.OpenFile(os.Getenv("BENCH_RECORD"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{record: record})
	config := &river.Config{Workers: workers, Queues: map[string]river.QueueConfig{}}
	for _, queue := range queues {
		config.Queues[queue] = river.QueueConfig{MaxWorkers: slots}
	}
	client, err := river.NewClient(riverpgxv5.New(pool), config)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	<-client.Stopped()
	return nil
}

func send(ctx context.Context, pool *pgxpool.Pool, queues []string) error {
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if err := insert(ctx, client, words[0], slices.Index(queues, words[0]), words[1:]); err != nil {
			return err
		}
		fmt.Println("sent")
	}
	return lines.Err()
}

func insert(ctx context.Context, client *river.Client[pgx.Tx], queue string, number int, sent []string) error {
	jobs := make([]river.InsertManyParams, len(sent))
	for i, each := range sent {
		sentNs, err := strconv.ParseInt(each, 10, 64)
		if err != nil {
			return err
		}
		jobs[i] = river.InsertManyParams{Args: noop{number, sentNs}, InsertOpts: &river.InsertOpts{Queue: queue}}
	}
	if len(jobs) == 1 {
		_, err := client.Insert(ctx, jobs[0].Args, jobs[0].InsertOpts)
		return err
	}
	_, err := client.InsertManyFast(ctx, jobs)
	return err
}
