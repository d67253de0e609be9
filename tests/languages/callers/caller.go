// One job, through Apache's library for Go over TLS.
// caller ADDRESS CA CERT|- KEY|- QUEUE; prints the job's descriptor, or REFUSED and the reason.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"

	"github.com/apache/thrift/lib/go/thrift"

	"callers/pinlater"
)

func main() {
	descriptor, err := enqueue(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5])
	var refusal *pinlater.PinLaterException
	if errors.As(err, &refusal) {
		fmt.Println("REFUSED", refusal.GetReason())
	} else if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	} else {
		fmt.Println(descriptor)
	}
}

func enqueue(address, ca, cert, key, queue string) (string, error) {
	authority, err := os.ReadFile(ca)
	if err != nil {
		return "", err
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority)
	config := &tls.Config{RootCAs: pool}
	if cert != "-" {
		pair, err := tls.LoadX509KeyPair(cert, key)
		if err != nil {
			return "", err
		}
		config.Certificates = []tls.Certificate{pair}
	}
	told := &thrift.TConfiguration{TLSConfig: config}
	transport := thrift.NewTFramedTransportConf(thrift.NewTSSLSocketConf(address, told), told)
	if err := transport.Open(); err != nil {
		return "", err
	}
	defer transport.Close()
	client := pinlater.NewPinLaterClientFactory(transport, thrift.NewTBinaryProtocolFactoryConf(told))
	caller := &pinlater.RequestContext{Source: "go"}
	if err := client.CreateQueue(context.Background(), caller, queue); err != nil {
		return "", err
	}
	job := pinlater.NewPinLaterJob() // with the defaults of the interface file, which a literal has not
	job.Body = []byte("from go")
	request := &pinlater.PinLaterEnqueueRequest{QueueName: queue, Jobs: []*pinlater.PinLaterJob{job}}
	answer, err := client.EnqueueJobs(context.Background(), caller, request)
	if err != nil {
		return "", err
	}
	return answer.JobDescriptors[0], nil
}
