// The program under test of the trial (tests/kits): a worker or a producer, by the Go kit's public interface alone.
//
//	PROGRAM worker CONFIG.json
//	PROGRAM producer CONFIG.json
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	pinlater "pinlater/workers/go"
)

type config struct {
	Servers      []string       `json:"servers"`
	TokenFile    string         `json:"token_file"`
	CAFile       string         `json:"ca_file"`
	Queues       map[string]int `json:"queues"`
	RawQueues    []string       `json:"raw_queues"`
	Slots        int            `json:"slots"`
	DrainMs      int64          `json:"drain_ms"`
	FailingHooks bool           `json:"failing_hooks"`
	Name         string         `json:"name"`
	Ledger       string         `json:"ledger"`
}

func main() {
	if err := run(os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(what, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var config config
	if err := json.Unmarshal(text, &config); err != nil {
		return err
	}
	client, err := pinlater.NewClient(pinlater.Config{
		Servers: config.Servers, TokenFile: config.TokenFile, CAFile: config.CAFile,
	})
	if err != nil {
		return err
	}
	defer client.Close()
	if what == "producer" {
		return produce(client)
	}
	return work(context.Background(), client, config)
}
