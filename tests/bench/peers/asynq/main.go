// The jobs on asynq, one program for all that the measure does with them:
//
//	asynq work [-slots N]  works on the queues of BENCH_QUEUES; each job writes a line of the record (record.py)
//	asynq send             enqueues the jobs of a line on standard input, "QUEUE NANOSECONDS...", and answers with a line
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hibiken/asynq"
)

const kind = "noop"

func main() {
	if len(os.Args) < 2 {
		log.Fatal("work or send")
	}
	redis, err := asynq.ParseRedisURI(os.Getenv("BENCH_BROKER"))
	if err != nil {
		log.Fatal(err)
	}
	queues := strings.Split(os.Getenv("BENCH_QUEUES"), ",")
	switch os.Args[1] {
	case "work":
		flags := flag.NewFlagSet("work", flag.ExitOnError)
		slots := flags.Int("slots", 0, "jobs at a time; 0: as many as processors, its default")
		_ = flags.Parse(os.Args[2:])
		err = work(redis, queues, *slots)
	case "send":
		err = send(redis, queues)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func work(redis asynq.RedisConnOpt, queues []string, slots int) error {
	record, err := os.OpenFile(os.Getenv("BENCH_RECORD"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	config := asynq.Config{Concurrency: slots, Queues: map[string]int{}, LogLevel: asynq.WarnLevel}
	for _, queue := range queues {
		config.Queues[queue] = 1
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc(kind, func(_ context.Context, task *asynq.Task) error {
		line := append(slices.Clone(task.Payload()), make([]byte, 8)...)
		binary.LittleEndian.PutUint64(line[12:], uint64(time.Now().UnixNano()))
		_, err := record.Write(line)
		return err
	})
	return asynq.NewServer(redis, config).Run(mux)
}

func send(redis asynq.RedisConnOpt, queues []string) error {
	client := asynq.NewClient(redis)
	defer client.Close()
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		for _, each := range words[1:] {
			sentNs, err := strconv.ParseInt(each, 10, 64)
			if err != nil {
				return err
			}
			payload := make([]byte, 12)
			binary.LittleEndian.PutUint32(payload, uint32(slices.Index(queues, words[0])))
			binary.LittleEndian.PutUint64(payload[4:], uint64(sentNs))
			if _, err := client.Enqueue(asynq.NewTask(kind, payload), asynq.Queue(words[0])); err != nil {
				return err
			}
		}
		fmt.Println("sent")
	}
	return lines.Err()
}
