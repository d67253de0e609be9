package pinlater_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	pinlater "pinlater/workers/go"
)

// held is a worker whose jobs named "held" run until they are let go.
type held struct {
	*pinlater.Worker
	begun chan *pinlater.Job
	let   chan struct{}
	ended chan error
}

func holding(t *testing.T, client *pinlater.Client, how pinlater.Options) *held {
	h := &held{Worker: pinlater.NewWorker(client, how), begun: make(chan *pinlater.Job, 10), let: make(chan struct{})}
	h.Handle("held", func(ctx context.Context, job *pinlater.Job) (any, error) {
		h.begun <- job
		select {
		case <-h.let:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})
	h.ended = running(t, h.Worker)
	return h
}

func ranOnce(t *testing.T, client *pinlater.Client, job string) {
	t.Helper()
	if info := waitFor(t, client, job); info.State != pinlater.Succeeded || info.AttemptsLeft != pinlater.DefaultAttempts {
		t.Error(info)
	}
}

func TestAJobOutlivesItsServerThatIsKilled(t *testing.T) {
	server := startServer(t)
	client := server.client(t, pinlater.Config{})
	queue := newQueue(t, client)
	how := options(queue)
	how.Lease = 20 * time.Second
	worker := holding(t, client, how)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "held"})
	receive(t, worker.begun)
	server.kill()
	close(worker.let)
	server.start()
	ranOnce(t, client, job)
	ranOnce(t, client, enqueue(t, client, queue, pinlater.JobSpec{Name: "held"}))
}

func TestAJobOutlivesAServerThatHangs(t *testing.T) {
	server := startServer(t)
	client := server.client(t, pinlater.Config{})
	queue := newQueue(t, client)
	how := options(queue)
	how.Lease = 20 * time.Second
	worker := holding(t, client, how)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "held"})
	attempt := receive(t, worker.begun)
	server.signal(syscall.SIGSTOP)
	defer server.signal(syscall.SIGCONT)
	time.AfterFunc(6*time.Second, func() { server.signal(syscall.SIGCONT) })
	close(worker.let)
	ranOnce(t, client, job)
	if attempt.Cause() != nil {
		t.Error(attempt.Cause())
	}
}

func TestAWorkerStopsWhileItsServerHangs(t *testing.T) {
	server := startServer(t)
	client := server.client(t, pinlater.Config{})
	worker := holding(t, client, options(newQueue(t, client)))
	server.signal(syscall.SIGSTOP)
	defer server.signal(syscall.SIGCONT)
	worker.Stop()
	if err := receive(t, worker.ended); err != nil {
		t.Error(err)
	}
}

func TestAConnectionThatBreaksLosesNoClaim(t *testing.T) {
	client, queue := prepare(t)
	between := newProxy(t, shared.server.address)
	worker := holding(t, shared.server.client(t, pinlater.Config{Servers: []string{between.address}}), options(queue))
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "held"})
	receive(t, worker.begun)
	for range [3]int{} {
		between.breakAll()
		time.Sleep(time.Second) // three of them are longer than a server's grace for bound claims
	}
	close(worker.let)
	ranOnce(t, client, job)
}

func TestAClaimThatIsLostIsTheNextWorkers(t *testing.T) {
	client, queue := prepare(t)
	between := newProxy(t, shared.server.address)
	how := options(queue)
	how.Lease = 2 * time.Second
	lost := make(chan *pinlater.Job, 1)
	how.Hooks.Lost = func(job *pinlater.Job) { lost <- job }
	cut := holding(t, shared.server.client(t, pinlater.Config{Servers: []string{between.address}}), how)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "held"})
	attempt := receive(t, cut.begun)
	time.Sleep(300 * time.Millisecond) // else the receipt of the job may be lost too, and then it costs no attempt
	between.isLost.Store(true)
	other := holding(t, client, options(queue))
	if again := receive(t, other.begun); again.Descriptor != job || again.Attempt != 2 {
		t.Fatal(again)
	}
	between.isLost.Store(false)
	between.breakAll()
	if receive(t, lost); attempt.Cause() != pinlater.ErrClaimLost {
		t.Error(attempt.Cause())
	}
	close(other.let)
	if info := waitFor(t, client, job); info.State != pinlater.Succeeded || info.AttemptsLeft != pinlater.DefaultAttempts-1 {
		t.Error(info)
	}
}

func TestATermSignalDrains(t *testing.T) {
	client, queue := prepare(t)
	worker := pinlater.NewWorker(client, options(queue))
	begun := make(chan struct{})
	worker.Handle("short", func(_ context.Context, job *pinlater.Job) (any, error) {
		close(begun)
		<-job.Stopping()
		return nil, nil
	})
	ended := make(chan error)
	go func() { ended <- worker.RunUntilSignal(context.Background()) }()
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "short"})
	receive(t, begun)
	if err := syscall.Kill(os.Getpid(), syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := receive(t, ended); err != nil {
		t.Error(err)
	}
	ranOnce(t, client, job)
}

func TestAnOperatorSeesAndStopsAWorker(t *testing.T) {
	client, queue := prepare(t)
	how := options(queue)
	how.Name = "kit-" + queue
	worker := holding(t, client, how)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "held"})
	receive(t, worker.begun)
	until(t, "it is listed", func() bool { return strings.Contains(shared.server.command("worker", "list"), how.Name) })
	shared.server.command("worker", "stop", "--app", how.Name)
	until(t, "it stops", func() bool { return strings.Contains(shared.server.command("worker", "list"), "stopping") })
	close(worker.let)
	if err := receive(t, worker.ended); err != nil {
		t.Error(err)
	}
	ranOnce(t, client, job)
	until(t, "it is listed no more", func() bool { return !strings.Contains(shared.server.command("worker", "list"), how.Name) })
}

func TestCallsGoOverTLS(t *testing.T) {
	folder := t.TempDir()
	ca := certificate(t, folder)
	server := startServer(t, "--tls-cert", filepath.Join(folder, "cert"), "--tls-key", filepath.Join(folder, "key"))
	client := server.client(t, pinlater.Config{CAFile: ca})
	queue := newQueue(t, client)
	worker := holding(t, client, options(queue))
	close(worker.let)
	ranOnce(t, client, enqueue(t, client, queue, pinlater.JobSpec{Name: "held"}))
	stranger := t.TempDir()
	for why, config := range map[string]pinlater.Config{"another authority": {CAFile: certificate(t, stranger)}, "no TLS": {}} {
		config.Timeout = time.Second
		_, err := server.client(t, config).Enqueue(background(t), queue, pinlater.JobSpec{Name: "held"})
		if (why == "no TLS") != errors.Is(err, pinlater.ErrForbidden) || (why == "no TLS") == errors.Is(err, pinlater.ErrUnreachable) {
			t.Error(why, err)
		}
	}
}

// certificate writes one that is its own authority, for 127.0.0.1.
func certificate(t *testing.T, folder string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	made := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "a test"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	bytes, err := x509.CreateCertificate(rand.Reader, made, made, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{"cert": {Type: "CERTIFICATE", Bytes: bytes}, "key": {Type: "EC PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(filepath.Join(folder, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(folder, "cert")
}
