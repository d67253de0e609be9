// producer HOST:PORT: enqueues one job, and prints its descriptor
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	pinlater "pinlater/workers/go"
)

func main() {
	client, err := pinlater.NewClient(pinlater.Config{Servers: os.Args[1:]})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	job := pinlater.JobSpec{Name: "greet", Kwargs: map[string]any{"to": "ada"}}
	descriptor, err := client.Enqueue(context.Background(), "first", job)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(descriptor)
}
