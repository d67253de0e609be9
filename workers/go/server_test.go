package pinlater_test

import (
	"context"
	"fmt"
	"math/rand"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	pinlater "pinlater/workers/go"
)

const within = 30 * time.Second

// server is `pinlater serve` on the embedded store, in a folder of its own: the command that PINLATER_COMMAND names
// (with spaces between its words), or pinlater on the PATH.
type server struct {
	t         testing.TB
	folder    string
	arguments []string
	address   string
	process   *exec.Cmd
}

func startServer(t testing.TB, arguments ...string) *server {
	t.Helper()
	port := freePort(t) // it has the same one again after a restart
	s := &server{t: t, folder: t.TempDir(), address: "127.0.0.1:" + port}
	s.arguments = append([]string{"serve", "--port", port, "--api", "none", "--http", "none"}, arguments...)
	s.start()
	t.Cleanup(s.stop)
	return s
}

// freePort is one that no connection to elsewhere gets by chance, as those from 32,768 on.
func freePort(t testing.TB) string {
	for range [100]int{} {
		port := fmt.Sprint(12_000 + rand.Intn(18_000))
		if listener, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("no port is free")
	return ""
}

// pinlater is the command, in the server's folder, with none of its settings from outside.
func (s *server) pinlater(arguments ...string) *exec.Cmd {
	words := strings.Fields(os.Getenv("PINLATER_COMMAND"))
	if len(words) == 0 {
		words = []string{"pinlater"}
	}
	command := exec.Command(words[0], append(words[1:], arguments...)...)
	command.Dir = s.folder
	command.Env = []string{"PINLATER_SERVER=" + s.address}
	for _, each := range os.Environ() {
		if !strings.HasPrefix(each, "PINLATER_") {
			command.Env = append(command.Env, each)
		}
	}
	return command
}

// command carries out a command of an operator, and gives what it prints.
func (s *server) command(arguments ...string) string {
	s.t.Helper()
	output, err := s.pinlater(arguments...).CombinedOutput()
	if err != nil {
		s.t.Fatalf("%v: %s", err, output)
	}
	return string(output)
}

func (s *server) start() {
	s.t.Helper()
	s.process = s.pinlater(s.arguments...)
	s.process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	log, err := os.OpenFile(filepath.Join(s.folder, "server.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.process.Stderr = log
	if err := s.process.Start(); err != nil {
		s.t.Fatalf("%v: set PINLATER_COMMAND, or install pinlater[server]", err)
	}
	for end := time.Now().Add(within); ; time.Sleep(20 * time.Millisecond) {
		connection, err := net.Dial("tcp", s.address)
		if err == nil {
			connection.Close()
			return
		}
		if time.Now().After(end) {
			text, _ := os.ReadFile(log.Name())
			s.t.Fatalf("the server does not start: %v\n%s", err, text)
		}
	}
}

func (s *server) signal(number syscall.Signal) {
	if err := s.process.Process.Signal(number); err != nil {
		s.t.Error(err)
	}
}

func (s *server) stop() {
	if s.process.ProcessState != nil {
		return
	}
	_ = s.process.Process.Signal(syscall.SIGTERM) // it may be dead already
	_ = s.process.Wait()                          // a killed one says so
}

func (s *server) kill() {
	s.signal(syscall.SIGKILL)
	_ = s.process.Wait() // it says that it was killed
}

func (s *server) client(t testing.TB, config pinlater.Config) *pinlater.Client {
	t.Helper()
	if config.Servers == nil {
		config.Servers = []string{s.address}
	}
	config.Log = t.Logf
	client, err := pinlater.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

var shared struct {
	once   sync.Once
	server *server
	queues atomic.Int64
}

func init() { rand.Seed(time.Now().UnixNano()) } // Go 1.19 begins with the same numbers each time

// TestMain ends the server that most tests share.
func TestMain(m *testing.M) {
	code := m.Run()
	if shared.server != nil {
		shared.server.stop()
		os.RemoveAll(shared.server.folder)
	}
	os.Exit(code)
}

// lasting is a testing.TB for what outlives the test that began it.
type lasting struct{ testing.TB }

func (lasting) Cleanup(func()) {}

func (l lasting) TempDir() string {
	folder, err := os.MkdirTemp("", "pinlater-go")
	if err != nil {
		l.Fatal(err)
	}
	return folder
}

// prepare gives a client of the shared server, and a queue of its own.
func prepare(t testing.TB) (*pinlater.Client, string) {
	t.Helper()
	shared.once.Do(func() { shared.server = startServer(lasting{t}) })
	if shared.server == nil {
		t.Fatal("there is no server")
	}
	client := shared.server.client(t, pinlater.Config{})
	return client, newQueue(t, client)
}

func newQueue(t testing.TB, client *pinlater.Client) string {
	t.Helper()
	queue := fmt.Sprintf("go_%d", shared.queues.Add(1))
	until(t, "the server creates a queue", func() bool { return client.CreateQueue(background(t), queue) == nil })
	return queue
}

func background(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), within)
	t.Cleanup(cancel)
	return ctx
}

// running is a worker in the background, which the end of the test stops.
func running(t testing.TB, worker *pinlater.Worker) (ended chan error) {
	ended = make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		ended <- worker.Run(context.Background())
	}()
	t.Cleanup(func() {
		worker.Stop()
		worker.Stop()
		<-done
	})
	return ended
}

func enqueue(t testing.TB, client *pinlater.Client, queue string, job pinlater.JobSpec) string {
	t.Helper()
	descriptor, err := client.Enqueue(background(t), queue, job)
	if err != nil {
		t.Fatal(err)
	}
	return descriptor
}

func waitFor(t testing.TB, client *pinlater.Client, descriptor string) *pinlater.JobInfo {
	t.Helper()
	info, err := client.Wait(background(t), descriptor)
	if err != nil {
		t.Fatalf("%s: %v", descriptor, err)
	}
	return info
}

func receive[T any](t testing.TB, from <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-from:
	case <-time.After(within):
		t.Fatal("nothing comes")
	}
	return value
}

func until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(within); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not come true: " + what)
		}
	}
}

// proxy stands between a client and a server; it can lose all bytes, or break all connections.
type proxy struct {
	address string
	target  string
	isLost  atomic.Bool
	mu      sync.Mutex
	open    []net.Conn
}

func newProxy(t testing.TB, target string) *proxy { return newProxyAt(t, "127.0.0.1:0", target) }

func newProxyAt(t testing.TB, address, target string) *proxy {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{address: listener.Addr().String(), target: target}
	t.Cleanup(func() { listener.Close(); p.breakAll() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", p.target)
			if err != nil {
				from.Close()
				continue
			}
			p.mu.Lock()
			p.open = append(p.open, from, to)
			p.mu.Unlock()
			go p.pass(from, to)
			go p.pass(to, from)
		}
	}()
	return p
}

func (p *proxy) pass(from, to net.Conn) {
	defer to.Close()
	buffer := make([]byte, 64<<10)
	for {
		count, err := from.Read(buffer)
		if err != nil {
			return
		}
		if p.isLost.Load() {
			continue // half open: whoever sends hears nothing
		}
		if _, err := to.Write(buffer[:count]); err != nil {
			return
		}
	}
}

// connections is how many it has had since they were last broken.
func (p *proxy) connections() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.open) / 2
}

func (p *proxy) breakAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, each := range p.open {
		each.Close()
	}
	p.open = nil
}
