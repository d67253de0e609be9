// The jobs on the kit for Go: kit [-slots N] works on the queues of BENCH_QUEUES; each job writes a line of the record
// (record.py).
package main

import (
	"context"
	"encoding/binary"
	"flag"
	"log"
	"os"
	"strings"
	"time"

	pinlater "pinlater/workers/go"
)

func main() {
	slots := flag.Int("slots", 8, "jobs at a time")
	flag.Parse()
	record, err := os.OpenFile(os.Getenv("BENCH_RECORD"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		log.Fatal(err)
	}
	client, err := pinlater.NewClient(pinlater.Config{Servers: []string{os.Getenv("BENCH_BROKER")}})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	queues := map[string]int{}
	options := pinlater.Options{Queues: queues, Slots: *slots}
	names := strings.Split(os.Getenv("BENCH_QUEUES"), ",")
	for _, name := range names {
		queues[name] = 1
	}
	worker := pinlater.NewWorker(client, options)
	for number, name := range names {
		number := number
		worker.Handle("noop_"+name, func(_ context.Context, job *pinlater.Job) (any, error) {
			var sentNs int64
			if err := job.BindArgs(&sentNs); err != nil {
				return nil, err
			}
			line := make([]byte, 20)
			binary.LittleEndian.PutUint32(line, uint32(number))
			binary.LittleEndian.PutUint64(line[4:], uint64(sentNs))
			binary.LittleEndian.PutUint64(line[12:], uint64(time.Now().UnixNano()))
			_, err := record.Write(line)
			return nil, err
		})
	}
	if err := worker.RunUntilSignal(context.Background()); err != nil {
		log.Fatal(err)
	}
}
