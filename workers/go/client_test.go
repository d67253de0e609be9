package pinlater_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	pinlater "pinlater/workers/go"
)

func TestEnqueuedJobsAreStoredWithAllTheyHave(t *testing.T) {
	client, queue := prepare(t)
	ctx := background(t)
	descriptors, err := client.EnqueueMany(ctx, queue, []pinlater.JobSpec{
		{Name: "a", Kwargs: map[string]any{"n": 1}, Priority: 2, Attempts: 3, Delay: time.Hour},
		{Body: []byte{0, 255}, RunAt: time.Now().Add(time.Hour)},
	})
	if err != nil || len(descriptors) != 2 {
		t.Fatal(descriptors, err)
	}
	for i, attempts := range []int{3, pinlater.DefaultAttempts} {
		info, err := client.Lookup(ctx, descriptors[i])
		if err != nil || info.State != pinlater.Pending || info.AttemptsAllowed != attempts || info.AttemptsLeft != attempts {
			t.Error(info, err)
		}
	}
	if !strings.Contains(descriptors[0], ":p2:") || !strings.Contains(descriptors[1], ":p1:") {
		t.Error("priorities of ", descriptors)
	}
}

func TestADedupeKeyIsTakenOnce(t *testing.T) {
	client, queue := prepare(t)
	job := pinlater.JobSpec{Name: "a", DedupeKey: "k", Delay: time.Hour}
	first := enqueue(t, client, queue, job)
	if again := enqueue(t, client, queue, job); again != first {
		t.Error(again, first)
	}
	job.OnDuplicate = pinlater.Reject
	if _, err := client.Enqueue(background(t), queue, job); !errors.Is(err, pinlater.ErrDuplicate) {
		t.Error(err)
	}
	job.OnDuplicate, job.Attempts = pinlater.Replace, 7
	if again := enqueue(t, client, queue, job); again != first {
		t.Error(again, first)
	}
	if info, err := client.Lookup(background(t), first); err != nil || info.AttemptsAllowed != 7 {
		t.Error(info, err)
	}
}

func TestASendIDIsStoredOnce(t *testing.T) {
	client, queue := prepare(t)
	job := pinlater.JobSpec{Name: "a", SendID: "one"}
	if first, again := enqueue(t, client, queue, job), enqueue(t, client, queue, job); first != again {
		t.Error(first, again)
	}
}

func TestAPendingJobIsCancelled(t *testing.T) {
	client, queue := prepare(t)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "a", Delay: time.Hour})
	if done, err := client.Cancel(background(t), job); err != nil || !done {
		t.Error(done, err)
	}
	if _, err := client.Wait(background(t), job); !errors.Is(err, pinlater.ErrJobGone) {
		t.Error(err)
	}
	if done, err := client.Cancel(background(t), job); err != nil || done {
		t.Error(done, err)
	}
}

func TestRefusalsSayWhyAndWhetherToTryAgain(t *testing.T) {
	client, queue := prepare(t)
	_, err := client.Enqueue(background(t), "no_such_queue", pinlater.JobSpec{Name: "a"})
	var refused *pinlater.Error
	if !errors.Is(err, pinlater.ErrQueueNotFound) || !errors.As(err, &refused) || refused.Retryable {
		t.Error(err)
	}
	if _, err := client.Enqueue(background(t), queue, pinlater.JobSpec{Name: "a", Priority: 99}); err == nil {
		t.Error("priority 99 is taken")
	}
	for _, wrong := range []pinlater.JobSpec{
		{}, {Name: "a", Body: []byte("b")}, {Name: "a", Kwargs: []int{1}}, {Name: "a", Kwargs: func() {}}, {Name: "a", Attempts: -1},
	} {
		if _, err := client.Enqueue(background(t), queue, wrong); err == nil || errors.As(err, &refused) && refused == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

func TestAWaitEndsWithItsContext(t *testing.T) {
	client, queue := prepare(t)
	job := enqueue(t, client, queue, pinlater.JobSpec{Name: "a", Delay: time.Hour})
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	if _, err := client.Wait(ctx, job); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { _, err := client.Wait(ctx, job); ended <- err }()
	time.Sleep(100 * time.Millisecond)
	stop()
	if err := receive(t, ended); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestWhereNobodyAnswersNothingIsChanged(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close()
	client, err := pinlater.NewClient(pinlater.Config{
		Servers: []string{listener.Addr().String()}, Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var failed *pinlater.Error
	_, err = client.Enqueue(background(t), "a", pinlater.JobSpec{Name: "a"})
	if !errors.Is(err, pinlater.ErrUnreachable) || !errors.As(err, &failed) || !failed.Retryable {
		t.Error(err)
	}
}

func TestAStrangerIsNoServer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n")) // what becomes of it is the test
		}
	}()
	client, err := pinlater.NewClient(pinlater.Config{
		Servers: []string{listener.Addr().String()}, Timeout: 300 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.Enqueue(background(t), "a", pinlater.JobSpec{Name: "a"}); err == nil || !strings.Contains(err.Error(), "no port of a PinLater server") {
		t.Error(err)
	}
}

func TestAnEnqueueWhoseAnswerIsLostIsStoredOnce(t *testing.T) {
	client, queue := prepare(t)
	between := newProxy(t, shared.server.address)
	through := shared.server.client(t, pinlater.Config{Servers: []string{between.address}, Timeout: 20 * time.Second})
	job := pinlater.JobSpec{Name: "a", DedupeKey: "k"}
	enqueue(t, through, queue, pinlater.JobSpec{Name: "b"})
	between.isLost.Store(true)
	time.AfterFunc(300*time.Millisecond, func() { between.isLost.Store(false); between.breakAll() })
	first := enqueue(t, through, queue, job)
	if again := enqueue(t, client, queue, job); again != first {
		t.Error(first, again)
	}
}

func TestAHungServerIsLeftForAnother(t *testing.T) {
	one := startServer(t)
	other := newProxy(t, one.address)
	other.isLost.Store(true)
	queue := newQueue(t, one.client(t, pinlater.Config{}))
	client := one.client(t, pinlater.Config{Servers: []string{other.address, one.address}, Timeout: 4 * time.Second})
	for range [3]int{} { // one of them begins with the half open one
		enqueue(t, client, queue, pinlater.JobSpec{Name: "a"})
	}
}

// names says what addresses a name has.
type names struct {
	mu    sync.Mutex
	found []string
}

func (n *names) lookup(_ context.Context, host string) ([]string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.found == nil {
		return nil, errors.New("no such host: " + host)
	}
	return n.found, nil
}

func (n *names) set(found ...string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.found = found
}

// named is a client that knows the shared server by a name alone.
func named(t *testing.T, of *names) *pinlater.Client {
	t.Helper()
	server := "dns:queue.internal:" + sharedPort(t)
	return shared.server.client(t, pinlater.Config{Servers: []string{server}, LookupHost: of.lookup})
}

func sharedPort(t *testing.T) string {
	t.Helper()
	_, port, err := net.SplitHostPort(shared.server.address)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestADeadAddressOfANameIsPassedOver(t *testing.T) {
	client, queue := prepare(t)
	for range [3]int{} { // another address may be the first
		through := named(t, &names{found: []string{"127.0.0.2", "127.0.0.1", "127.0.0.3"}})
		worker := holding(t, through, options(queue))
		close(worker.let)
		ranOnce(t, client, enqueue(t, through, queue, pinlater.JobSpec{Name: "held"}))
		worker.Stop()
	}
}

func TestAnAddressOfANameThatHangsIsPassedOver(t *testing.T) {
	_, queue := prepare(t)
	newProxyAt(t, "127.0.0.2:"+sharedPort(t), shared.server.address).isLost.Store(true)
	for range [3]int{} { // one of them begins with the one that hangs
		enqueue(t, named(t, &names{found: []string{"127.0.0.2", "127.0.0.1"}}), queue, pinlater.JobSpec{Name: "a"})
	}
}

func TestANameIsLookedUpAgain(t *testing.T) {
	client, queue := prepare(t)
	of := &names{}
	through := named(t, of)
	short, cancel := context.WithTimeout(background(t), 300*time.Millisecond)
	defer cancel()
	_, err := through.Enqueue(short, queue, pinlater.JobSpec{Name: "held"})
	if !errors.Is(err, pinlater.ErrUnreachable) || !strings.Contains(err.Error(), "no such host: queue.internal") {
		t.Fatal(err)
	}
	of.set("127.0.0.2") // nobody is there
	time.AfterFunc(300*time.Millisecond, func() { of.set("127.0.0.1") })
	job := enqueue(t, through, queue, pinlater.JobSpec{Name: "held"})
	worker := holding(t, through, options(queue))
	receive(t, worker.begun)
	other := newProxyAt(t, "127.0.0.2:"+sharedPort(t), shared.server.address)
	of.set("127.0.0.2")
	until(t, "the worker moves to the address that the name has now", func() bool { return other.connections() >= 2 })
	time.Sleep(3 * time.Second) // longer than a server's grace for claims that were bound to what has closed
	close(worker.let)
	ranOnce(t, client, job)
}

func TestTheConfigurationIsChecked(t *testing.T) {
	folder := t.TempDir()
	empty := filepath.Join(folder, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range []pinlater.Config{
		{Servers: []string{}}, {Servers: []string{"a:b:c"}}, {CAFile: filepath.Join(folder, "none")}, {CAFile: empty},
		{TokenFile: filepath.Join(folder, "none")},
	} {
		if _, err := pinlater.NewClient(wrong); err == nil {
			t.Errorf("%v is taken", wrong)
		}
	}
}

func TestATokenFileIsReadAgainWhenItsTokenIsRefusedAndAWorkerEndsWithoutOne(t *testing.T) {
	folder := t.TempDir()
	file, rules := filepath.Join(folder, "token"), filepath.Join(folder, "rules.toml")
	for path, text := range map[string]string{rules: "[[rules]]\nwho = [\"token:nobody\"]\nroles = [\"viewer\"]\n", file: "plt_" + strings.Repeat("x", 43) + "\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	server := startServer(t, "--rules", rules)
	client := server.client(t, pinlater.Config{TokenFile: file, Timeout: within}) // answers to wrong tokens are held back
	if err := client.CreateQueue(background(t), "a"); !errors.Is(err, pinlater.ErrForbidden) {
		t.Fatal(err)
	}
	server.command("token", "create", "web", "--role", "admin", "--output", file)
	if err := client.CreateQueue(background(t), "a"); err != nil {
		t.Fatal(err)
	}
	worker := pinlater.NewWorker(client, options("a"))
	ended := running(t, worker)
	server.command("token", "revoke", "web")
	if err := receive(t, ended); !errors.Is(err, pinlater.ErrForbidden) {
		t.Error(err)
	}
}
