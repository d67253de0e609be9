// The scenario of tests/languages/scenario.py, through Apache's library for Go.
// caller HOST PORT framed|buffered binary|compact CA|- CERT|- KEY|- TOKEN|- QUEUE PASSWORD
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	wire "callers/pinlater"
)

var (
	ctx       = context.Background()
	given     = os.Args
	queue     = given[9]
	caller    = wire.NewRequestContext()
	answers   = bufio.NewReader(os.Stdin)
	transport thrift.TTransport
	client    *wire.PinLaterClient
)

// failed ends the program at an error that the scenario does not know.
func failed(err error) {
	var refusal *wire.PinLaterException
	if errors.As(err, &refusal) {
		fmt.Println("REFUSED", refusal.GetReason())
		os.Exit(0)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func must[T any](value T, err error) T {
	failed(err)
	return value
}

func open() {
	told := &thrift.TConfiguration{SocketTimeout: 30 * time.Second}
	address := net.JoinHostPort(given[1], given[2])
	if given[5] == "-" {
		transport = thrift.NewTSocketConf(address, told)
	} else {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(must(os.ReadFile(given[5])))
		told.TLSConfig = &tls.Config{RootCAs: pool}
		if given[6] != "-" {
			told.TLSConfig.Certificates = []tls.Certificate{must(tls.LoadX509KeyPair(given[6], given[7]))}
		}
		transport = thrift.NewTSSLSocketConf(address, told)
	}
	if given[3] == "framed" {
		transport = thrift.NewTFramedTransportConf(transport, told)
	} else {
		transport = thrift.NewTBufferedTransport(transport, 8192)
	}
	var layers thrift.TProtocolFactory = thrift.NewTBinaryProtocolFactoryConf(told)
	if given[4] == "compact" {
		layers = thrift.NewTCompactProtocolFactoryConf(told)
	}
	failed(transport.Open())
	client = wire.NewPinLaterClientFactory(transport, layers)
}

func bit(truth bool) int {
	if truth {
		return 1
	}
	return 0
}

// jobOf has the defaults of the interface file, which a literal has not: that would send attempts of 0.
func jobOf(body []byte) *wire.PinLaterJob {
	job := wire.NewPinLaterJob()
	job.Body = body
	return job
}

func enqueue(into string, job *wire.PinLaterJob) (*wire.PinLaterEnqueueResponse, error) {
	return client.EnqueueJobs(ctx, caller, &wire.PinLaterEnqueueRequest{QueueName: into, Jobs: []*wire.PinLaterJob{job}})
}

func stored(job *wire.PinLaterJob) string {
	return must(enqueue(queue, job)).JobDescriptors[0]
}

func lookup(descriptor string) *wire.PinLaterJobInfo {
	asked := wire.NewPinLaterLookupJobRequest()
	asked.JobDescriptors, asked.IncludeBody, asked.IncludeResult_ = []string{descriptor}, true, true
	return must(client.LookupJobs(ctx, caller, asked))[descriptor]
}

func count(future bool) (int32, error) {
	asked := wire.NewPinLaterGetJobCountRequest()
	asked.QueueName, asked.JobState, asked.CountFutureJobs = queue, wire.PinLaterJobState_PENDING, future
	return client.GetJobCount(ctx, caller, asked)
}

func dequeue(limit int32) *wire.PinLaterDequeueResponse {
	asked := wire.NewPinLaterDequeueRequest()
	asked.QueueName, asked.Limit, asked.WaitMillis = queue, limit, 1000
	asked.ClaimTimeoutMillis = thrift.Int32Ptr(600000)
	return must(client.DequeueJobs(ctx, caller, asked))
}

func isInQueues() int {
	for _, name := range must(client.GetQueueNames(ctx, caller)) {
		if name == queue {
			return 1
		}
	}
	return 0
}

func ack(step string, succeeded, failures []*wire.PinLaterJobAckInfo) {
	asked := &wire.PinLaterJobAckRequest{QueueName: queue, JobsSucceeded: succeeded, JobsFailed: failures}
	fmt.Print(step)
	for _, outcome := range must(client.AckJobs(ctx, caller, asked)).Outcomes {
		fmt.Print(" ", int(outcome))
	}
	fmt.Println()
}

func ackOf(descriptor string, taken *wire.PinLaterDequeueResponse) *wire.PinLaterJobAckInfo {
	info := wire.NewPinLaterJobAckInfo()
	info.JobDescriptor, info.ClaimDescriptor = descriptor, taken.JobMetadata[descriptor].ClaimDescriptor
	return info
}

func pause(step string) {
	fmt.Println(step + "?")
	must(answers.ReadString('\n'))
	jobs, err := count(true)
	var broken thrift.TTransportException
	if errors.As(err, &broken) {
		transport.Close()
		open()
		fmt.Println(step, "broken", must(count(true)))
		return
	}
	failed(err)
	fmt.Println(step, "kept", jobs)
}

func flow() {
	first, second := wire.NewFlowStage(), wire.NewFlowStage()
	first.Name, first.QueueName = "add", queue+"_steps"
	second.Name, second.QueueName, second.ParentStage = "total", queue+"_steps", "add"
	asked := wire.NewCreateFlowRequest()
	asked.Name, asked.Stages, asked.Metadata = "sums", []*wire.FlowStage{first, second}, map[string]string{"month": "11"}
	made := must(client.CreateFlow(ctx, caller, asked))
	status := must(client.GetFlow(ctx, caller, &wire.GetFlowRequest{FlowId: made.ID}))
	fmt.Print("flow ", bit(made.IsNew), " ", status.Metadata["month"])
	for _, each := range status.Stages {
		fmt.Print(" ", each.Stage.Name, "<", each.Stage.ParentStage)
	}
	fmt.Println()
}

func main() {
	caller.Source = "caller"
	if given[8] != "-" {
		caller.Token = &given[8]
	}
	open()
	failed(client.CreateQueue(ctx, caller, queue))
	fmt.Println("create")
	plain := stored(jobOf([]byte("plain")))
	fmt.Println("plain")
	named := jobOf([]byte("keyed"))
	named.DedupeKey, named.Priority = thrift.StringPtr("key"), 2
	keyed := stored(named)
	again := must(enqueue(queue, named))
	fmt.Println("keyed", int(again.Outcomes[0]), bit(again.JobDescriptors[0] == keyed))
	all, large := make([]byte, 256), make([]byte, 100000)
	for index := range large {
		large[index] = byte(index % 251)
	}
	for index := range all {
		all[index] = byte(index)
	}
	ofGroup := jobOf(all)
	ofGroup.Priority, ofGroup.NumAttemptsAllowed, ofGroup.CustomStatus = 3, 7, "grüße 日本 🚀"
	ofGroup.Group, ofGroup.Tags = thrift.StringPtr("tenant-é"), []string{"red", "grün"}
	grouped := stored(ofGroup)
	info := lookup(grouped)
	fmt.Println("group", info.GetGroup(), strings.Join(info.Tags, ","), info.CustomStatus, info.AttemptsAllowed)
	later := jobOf([]byte("later"))
	later.RunAfterTimestampMillis = thrift.Int64Ptr(4000000000123)
	delayed := stored(later)
	fmt.Println("delayed", lookup(delayed).GetRunAfterTimestampMillis())
	fmt.Println("count", must(count(false)), must(count(true)))
	fmt.Println("names", isInQueues())
	taken := dequeue(10)
	for _, each := range []string{plain, keyed, grouped} {
		metadata := taken.JobMetadata[each]
		body := hex.EncodeToString(taken.Jobs[each])
		fmt.Println("dequeued", metadata.GetPriority(), metadata.GetAttemptsAllowed(), body)
	}
	good, bad, slow := ackOf(plain, taken), ackOf(keyed, taken), ackOf(grouped, taken)
	point := wire.NewPinLaterCheckpointJobRequest()
	point.JobDescriptor, point.ClaimDescriptor, point.NewBodyBytes_ = plain, good.ClaimDescriptor, []byte{0, 255}
	point.PrependCustomStatus = thrift.StringPtr("half")
	points := wire.NewPinLaterCheckpointJobsRequest()
	points.QueueName, points.Requests = queue, []*wire.PinLaterCheckpointJobRequest{point}
	failed(client.CheckpointJobs(ctx, caller, points))
	info = lookup(plain)
	fmt.Println("checkpoint", int(info.JobState), hex.EncodeToString(info.Body), info.CustomStatus)
	good.Result_, good.Progress = []byte{0, 255, 128}, &wire.JobProgress{Fraction: thrift.Float64Ptr(0.5)}
	bad.Permanent, slow.RetryDelayMillis = true, 3600000
	ack("ack", []*wire.PinLaterJobAckInfo{good}, []*wire.PinLaterJobAckInfo{bad, slow})
	ack("stale", []*wire.PinLaterJobAckInfo{good}, nil)
	info = lookup(plain)
	fmt.Println("result", int(info.JobState), hex.EncodeToString(info.Result_), info.Progress.GetFraction())
	scan := wire.NewPinLaterScanJobsRequest()
	scan.QueueName, scan.JobState = queue, wire.PinLaterJobState_SUCCEEDED
	page := must(client.ScanJobs(ctx, caller, scan))
	jobs := page.ScannedJobs
	fmt.Println("scan", len(jobs), bit(jobs[0].JobDescriptor == plain), page.Continuation)
	_, err := enqueue("nowhere", jobOf([]byte("lost")))
	var refusal *wire.PinLaterException
	if errors.As(err, &refusal) {
		fmt.Println("error", int(refusal.ErrorCode), refusal.GetReason(), bit(refusal.GetRetryable()))
	}
	flow()
	cancel := &wire.CancelJobsRequest{QueueName: queue, JobDescriptors: []string{delayed}}
	fmt.Println("cancel", int(must(client.CancelJobs(ctx, caller, cancel)).Outcomes[delayed]))
	largest := stored(jobOf(large))
	came := dequeue(1)
	fmt.Println("large", len(came.Jobs[largest]), bit(bytes.Equal(came.Jobs[largest], large)))
	ack("ended", []*wire.PinLaterJobAckInfo{ackOf(largest, came)}, nil)
	fmt.Println("identity", must(client.GetAccess(ctx, caller)).Identity)
	pause("idle")
	pause("restart")
	failed(client.DeleteQueue(ctx, caller, queue, given[10]))
	fmt.Println("delete", isInQueues())
	transport.Close()
}
