package pinlater

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"pinlater/workers/go/internal/wire"
)

const (
	defaultPort    = "9010"
	defaultTimeout = 10 * time.Second
	// DefaultAttempts is one more than the retries of DefaultRetry.
	DefaultAttempts = 11
	// How long one lookup of Wait is held back by a server.
	waitPerCall = 20 * time.Second
)

// Config is where the servers are, and who calls.
type Config struct {
	// Servers are HOST, HOST:PORT, [IPV6]:PORT, or dns:NAME:PORT for all addresses of a name, each as a server of its own:
	// the name is looked up again after 15 s, or after 1 s where a server failed. The port is 9010 if it is left out.
	// Nil: what PINLATER_SERVER names (with commas), else 127.0.0.1.
	Servers []string
	// LookupHost gives the addresses of such a name: that of net.DefaultResolver where it is nil.
	LookupHost func(ctx context.Context, host string) ([]string, error)
	// CAFile: TLS with servers whose certificates this authority signed. CertFile and KeyFile: the caller's own. Without
	// CAFile: what PINLATER_TLS_CA, PINLATER_TLS_CERT and PINLATER_TLS_KEY name.
	CAFile, CertFile, KeyFile string
	// Token shows who calls. TokenFile is read again when the token is refused. Without either: PINLATER_TOKEN and
	// PINLATER_TOKEN_FILE.
	Token, TokenFile string
	// Source is the last part of the claims made for this program: HOST:PID and something random where it is "".
	Source string
	// Timeout is the time of a call with all its attempts: 10 s where it is 0.
	Timeout time.Duration
	// Log gets the messages of workers: log.Printf where it is nil.
	Log func(format string, values ...any)
}

// Client enqueues jobs, and waits for them. Any number of goroutines may use it.
type Client struct {
	config  Config
	tls     *tls.Config
	mu      sync.Mutex
	token   string
	servers *servers
}

// NewClient makes a client. It connects with its first call. The error is one of the configuration or its files.
func NewClient(config Config) (*Client, error) {
	if config.Servers == nil {
		config.Servers = strings.Split(firstOf(os.Getenv("PINLATER_SERVER"), "127.0.0.1"), ",")
	}
	if len(config.Servers) == 0 {
		return nil, errors.New("pinlater: no servers")
	}
	config.Servers = append([]string(nil), config.Servers...)
	for i, server := range config.Servers {
		server = strings.TrimSpace(server)
		if _, _, err := net.SplitHostPort(strings.TrimPrefix(server, dnsPrefix)); err != nil {
			server = strings.TrimSuffix(server, ":") + ":" + defaultPort
			if _, _, err := net.SplitHostPort(strings.TrimPrefix(server, dnsPrefix)); err != nil {
				return nil, fmt.Errorf("pinlater: the server %q: %w", config.Servers[i], err)
			}
		}
		config.Servers[i] = server
	}
	if config.CAFile == "" {
		config.CAFile, config.CertFile, config.KeyFile =
			os.Getenv("PINLATER_TLS_CA"), os.Getenv("PINLATER_TLS_CERT"), os.Getenv("PINLATER_TLS_KEY")
	}
	if config.Token == "" && config.TokenFile == "" {
		config.Token, config.TokenFile = os.Getenv("PINLATER_TOKEN"), os.Getenv("PINLATER_TOKEN_FILE")
	}
	if config.Source == "" {
		host, _ := os.Hostname()
		config.Source = fmt.Sprintf("%s:%d:%s", host, os.Getpid(), randomText(4))
	}
	if config.Timeout == 0 {
		config.Timeout = defaultTimeout
	}
	if config.LookupHost == nil {
		config.LookupHost = net.DefaultResolver.LookupHost
	}
	c := &Client{config: config, token: config.Token}
	if config.CAFile != "" {
		authority, err := os.ReadFile(config.CAFile)
		if err != nil {
			return nil, fmt.Errorf("pinlater: CAFile: %w", err)
		}
		c.tls = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !c.tls.RootCAs.AppendCertsFromPEM(authority) {
			return nil, fmt.Errorf("pinlater: CAFile: no certificate in %s", config.CAFile)
		}
		if config.CertFile != "" {
			pair, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
			if err != nil {
				return nil, fmt.Errorf("pinlater: CertFile: %w", err)
			}
			c.tls.Certificates = []tls.Certificate{pair}
		}
	}
	if err := c.readToken(); err != nil {
		return nil, err
	}
	c.servers = newServers(&c.config, c.tls, c.caller)
	return c, nil
}

// Close closes its connections. Calls that are under way end as they would.
func (c *Client) Close() { c.servers.close() }

func (c *Client) readToken() error {
	if c.config.TokenFile == "" {
		return nil
	}
	read, err := os.ReadFile(c.config.TokenFile)
	if err != nil {
		return fmt.Errorf("pinlater: TokenFile: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.token = strings.TrimSpace(string(read))
	return nil
}

// caller is the context of each call. A file that cannot be read leaves the token as it was.
func (c *Client) caller(renew bool) *wire.RequestContext {
	if renew {
		_ = c.readToken()
	}
	made := wire.NewRequestContext()
	made.Source = c.config.Source
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.token != "" {
		token := c.token
		made.Token = &token
	}
	return made
}

// JobSpec is a job to enqueue: Name and its arguments, or a raw Body. The rest may be left out.
type JobSpec struct {
	// Name is the type of the job, as workers know it.
	Name string
	// Args are arguments by position, Kwargs those by name: a map, or a struct; both become JSON.
	Args   []any
	Kwargs any
	// Headers travel with the job, such as traceparent.
	Headers map[string]string
	// Body is that of a raw job, without a name and arguments.
	Body []byte

	// Delay is how long it does not run; RunAt names the time itself.
	Delay time.Duration
	RunAt time.Time
	// Priority: 1 is the highest, and counts where it is 0.
	Priority int
	// Attempts is how often it is tried in all: DefaultAttempts where it is 0, and what the type of job allows counts
	// if that is less. A number given here counts also where it is more.
	Attempts int
	// DedupeKey is its name in the queue; while a job of that name is pending or running, and for DedupeFor after its
	// end, there is no second one. OnDuplicate says what becomes of this one then.
	DedupeKey   string
	DedupeFor   time.Duration
	OnDuplicate OnDuplicate
	// SerializeKey: jobs of one key run one at a time, as they were enqueued, in whichever queues.
	SerializeKey string
	// Group has its fair share of the queue, as a tenant.
	Group string
	// Tags are texts by which it is found.
	Tags []string
	// ExpiresAt is when it ends as failed, if it has not run.
	ExpiresAt time.Time
	// KeepResult keeps what the job returns for those who Wait, whatever its type says.
	KeepResult bool
	// SendID, 1 to 64 bytes: a second enqueue with the same one gets the first's answer, also from another process.
	// Where it is "", the client makes one for its own attempts.
	SendID string
}

// OnDuplicate says what an enqueue does where the job's DedupeKey is taken.
type OnDuplicate int

const (
	// Keep stores nothing, and gives the descriptor of the job that stands.
	Keep OnDuplicate = iota
	// Replace gives a pending job the new body, time and attempts.
	Replace
	// Reject makes it an error, ErrDuplicate; only for Enqueue.
	Reject
)

// Enqueue stores a job, and gives its descriptor. It is sent again, with the same send id, until it is known to be
// stored or Timeout is over; after ErrOutcomeUnknown it may have been stored.
func (c *Client) Enqueue(ctx context.Context, queue string, job JobSpec) (string, error) {
	descriptors, err := c.EnqueueMany(ctx, queue, []JobSpec{job})
	if err != nil {
		return "", err
	}
	return descriptors[0], nil
}

// EnqueueMany stores all jobs, or none, and gives their descriptors in order. Only jobs with different keys can be
// stored in part: Descriptors of the Error says which.
func (c *Client) EnqueueMany(ctx context.Context, queue string, jobs []JobSpec) ([]string, error) {
	request := wire.NewPinLaterEnqueueRequest()
	request.QueueName = queue
	send := randomText(16)
	for i := range jobs {
		job, err := jobs[i].written(send)
		if err != nil {
			return nil, fmt.Errorf("pinlater: job %d: %w", i, err)
		}
		request.Jobs = append(request.Jobs, job)
	}
	how := calling{timeout: c.config.Timeout, repeat: true}
	answer, err := ask(ctx, c.servers, how, (*wire.PinLaterClient).EnqueueJobs, request)
	if err != nil {
		return nil, err
	}
	if len(answer.JobDescriptors) != len(jobs) {
		return nil, &Error{Reason: "PROTOCOL_ERROR", Message: "an answer with another number of descriptors"}
	}
	return answer.JobDescriptors, nil
}

// written is the job as it is sent. The constructor's defaults stand where a literal would send 0.
func (j *JobSpec) written(send string) (*wire.PinLaterJob, error) {
	job := wire.NewPinLaterJob()
	job.Body = j.Body
	if (j.Name == "") == (j.Body == nil) {
		return nil, errors.New("it has a Name or a Body")
	}
	if j.Name != "" {
		made := &envelope{Job: j.Name, Headers: map[string]string{}, Attempts: j.Attempts}
		for name, value := range j.Headers {
			made.Headers[name] = value
		}
		if j.KeepResult {
			made.Headers[resultHeader] = "1"
		}
		for _, arg := range j.Args {
			value, err := written("", arg)
			if err != nil {
				return nil, err
			}
			made.Args = append(made.Args, value)
		}
		if j.Kwargs != nil {
			value, err := written("", j.Kwargs)
			if err != nil {
				return nil, err
			}
			if made.Kwargs = value; value[0] != '{' {
				return nil, errors.New("Kwargs is no map with text keys, and no struct")
			}
		}
		body, err := made.body()
		if err != nil {
			return nil, err
		}
		job.Body = body
	}
	if j.Priority < 0 || j.Priority > 127 || j.Attempts < 0 || j.Attempts > 1<<30 {
		return nil, errors.New("Priority is 1 to 127, Attempts 1 or more")
	}
	if j.Priority != 0 {
		job.Priority = int8(j.Priority)
	}
	job.NumAttemptsAllowed = DefaultAttempts
	if j.Attempts != 0 {
		job.NumAttemptsAllowed = int32(j.Attempts)
	}
	runAt := j.RunAt
	if runAt.IsZero() && j.Delay > 0 {
		runAt = time.Now().Add(j.Delay)
	}
	job.RunAfterTimestampMillis = timeOf(runAt)
	job.ExpiresAtMillis = timeOf(j.ExpiresAt)
	job.DedupeKey, job.SerializeKey, job.Group = textOf(j.DedupeKey), textOf(j.SerializeKey), textOf(j.Group)
	job.DedupeForMillis = j.DedupeFor.Milliseconds()
	if j.DedupeKey != "" {
		rule := wire.OnDuplicate(j.OnDuplicate)
		job.OnDuplicate = &rule
	}
	job.Tags = j.Tags
	job.SendId = textOf(firstOf(j.SendID, send))
	return job, nil
}

// Job states, as JobInfo has them.
const (
	Pending   = "pending"
	Running   = "running"
	Succeeded = "succeeded"
	Failed    = "failed"
	Cancelled = "cancelled"
)

// JobInfo is a job as a lookup found it.
type JobInfo struct {
	Descriptor string
	State      string
	// AttemptsLeft of AttemptsAllowed.
	AttemptsAllowed, AttemptsLeft int
	// Status is what its attempts left for people.
	Status string
	// Fraction, 0 to 1, and Text are its progress; HasProgress: it reported some.
	HasProgress bool
	Fraction    float64
	Text        string
	// Log has the last lines of its log, where they may be seen.
	Log []string

	result []byte
}

// HasEnded tells whether it succeeded, failed or was cancelled.
func (i *JobInfo) HasEnded() bool { return i.State != Pending && i.State != Running }

// HasResult tells whether it left one that is still kept.
func (i *JobInfo) HasResult() bool { return i.result != nil }

// Result reads the result of the job, which is JSON, as json.Unmarshal does.
func (i *JobInfo) Result(into any) error {
	if i.result == nil {
		return errors.New("pinlater: the job left no result, or it is not kept any more")
	}
	return readResult(i.result, into)
}

// Lookup gives what is known of a job, with its result and log. ErrJobGone: it is not there.
func (c *Client) Lookup(ctx context.Context, descriptor string) (*JobInfo, error) {
	return c.lookup(ctx, descriptor, 0)
}

// Wait gives the job when it has ended: also one that failed, as its State says. The error is that of the context when
// its time is over, ErrJobGone, or an *Error after a lookup that nobody could answer.
func (c *Client) Wait(ctx context.Context, descriptor string) (*JobInfo, error) {
	for {
		held := waitPerCall
		if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < held {
			held = time.Until(deadline) - 50*time.Millisecond // it answers before the caller gives up
		}
		if held < time.Millisecond {
			held = time.Millisecond
		}
		info, err := c.lookup(ctx, descriptor, held)
		if err == nil && info.HasEnded() {
			return info, nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		var failed *Error
		if err != nil && !(errors.As(err, &failed) && failed.Retryable) {
			return nil, err
		}
		if err != nil || held < firstBackoff {
			wait(ctx, firstBackoff)
		}
	}
}

func (c *Client) lookup(ctx context.Context, descriptor string, held time.Duration) (*JobInfo, error) {
	request := wire.NewPinLaterLookupJobRequest()
	request.JobDescriptors = []string{descriptor}
	request.WaitMillis = int32(held.Milliseconds())
	request.IncludeResult_, request.IncludeTrail = true, true
	how := calling{timeout: c.config.Timeout + held, held: held, repeat: true}
	found, err := ask(ctx, c.servers, how, (*wire.PinLaterClient).LookupJobs, request)
	if err != nil {
		return nil, err
	}
	job := found[descriptor]
	if job == nil {
		return nil, ErrJobGone
	}
	info := &JobInfo{
		Descriptor: descriptor, State: []string{Pending, Running, Succeeded, Failed}[job.JobState],
		AttemptsAllowed: int(job.AttemptsAllowed), AttemptsLeft: int(job.AttemptsRemaining), Status: job.CustomStatus,
		result: job.Result_,
	}
	if job.GetCancelled() {
		info.State = Cancelled
	}
	if job.Progress != nil {
		info.HasProgress, info.Fraction, info.Text = true, job.Progress.GetFraction(), job.Progress.GetText()
	}
	for _, line := range job.LogLines {
		info.Log = append(info.Log, line.GetText())
	}
	return info, nil
}

// Cancel removes a pending job, and asks the worker of a running one to stop it. It tells whether either was done; a
// job that has ended, or is not there, is no error.
func (c *Client) Cancel(ctx context.Context, descriptor string) (bool, error) {
	request := wire.NewCancelJobsRequest()
	request.QueueName = queueOf(descriptor)
	request.JobDescriptors = []string{descriptor}
	mode := wire.CancelMode_ALSO_RUNNING
	request.Mode = &mode
	answer, err := ask(ctx, c.servers, calling{timeout: c.config.Timeout}, (*wire.PinLaterClient).CancelJobs, request)
	if err != nil {
		return false, err
	}
	outcome, found := answer.Outcomes[descriptor]
	return found && (outcome == wire.CancelOutcome_CANCELLED || outcome == wire.CancelOutcome_REQUESTED), nil
}

// CreateQueue makes a queue; one that is there already is no error.
func (c *Client) CreateQueue(ctx context.Context, name string) error {
	how := calling{timeout: c.config.Timeout, repeat: true}
	return tell(ctx, c.servers, how, (*wire.PinLaterClient).CreateQueue, name)
}

func queueOf(descriptor string) string { return strings.SplitN(descriptor, ":", 2)[0] }

func timeOf(at time.Time) *int64 {
	if at.IsZero() {
		return nil
	}
	ms := at.UnixMilli()
	return &ms
}

// textOf gives nil for "".
func textOf(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

func firstOf(text, other string) string {
	if text != "" {
		return text
	}
	return other
}

func randomText(bytes int) string {
	random := make([]byte, bytes)
	_, _ = rand.Read(random) // of the system's generator, which does not fail
	return hex.EncodeToString(random)
}
