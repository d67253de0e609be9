package pinlater

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"pinlater/workers/go/internal/wire"
)

// Handler runs jobs of one name. A nil error is a success; what it returns beside that is the job's result, where one is
// kept. Fail, RetryAfter and Snooze choose another end; after any other error the retry policy decides.
//
// The context ends when the job is to stop: Job.Cause says why.
type Handler func(ctx context.Context, job *Job) (any, error)

// HandlerOptions are how jobs of one name run. Its zero value is that of the Python framework's defaults.
type HandlerOptions struct {
	// Retry is the policy: DefaultRetry where its Delay is nil.
	Retry Retry
	// Attempts bounds those of a job; 0: what the policy allows. What the job was enqueued with counts if that is less.
	Attempts int
	// TimeLimit of an attempt: 1 h where it is 0; below 0: none. Beyond it the attempt has failed by the retry policy, its
	// context ends, and what the handler returns is dropped. The slot is taken until then.
	TimeLimit time.Duration
	// MaxSnoozes is how often a job may be put off: 100 where it is 0.
	MaxSnoozes int
	// KeepResult keeps what the handler returns for those who wait, unless the job says otherwise.
	KeepResult bool
}

// The defaults of workers/pinlater_workers/jobs/settings.py.
const (
	defaultTimeLimit  = time.Hour
	defaultMaxSnoozes = 100
	maxLogLines       = 100
)

// Job is one attempt at a job, as its handler gets it.
type Job struct {
	Descriptor string
	Queue      string
	// Name is the type of the job; "" for a raw one.
	Name string
	// Attempt has the number 1 for the first, of AttemptsAllowed.
	Attempt, AttemptsAllowed int
	Priority                 int
	// EnqueuedAt and RunAfter are by the server's clock.
	EnqueuedAt, RunAfter time.Time
	// Headers travel with the job. Snoozes is how often it was put off.
	Headers map[string]string
	Snoozes int
	// Body has all bytes: of a raw job its arguments.
	Body []byte

	envelope     *envelope
	handler      *handler
	claim        string
	attemptsLeft int
	runAfterMs   int64
	worker       *Worker

	mu       sync.Mutex
	cancel   context.CancelFunc
	cause    error
	by       string
	fraction *float64
	text     *string
	lines    []*wire.PinLaterLogLine

	// Of the worker, under its lock.
	began   time.Time
	arrived time.Time
	goodAt  time.Time // a server surely had the claim
	beatAt  time.Time
	saidAt  time.Time
	isDone  bool
}

// Bind reads the arguments by name into a struct or a map, as json.Unmarshal does.
func (j *Job) Bind(into any) error {
	if j.envelope == nil || len(j.envelope.Kwargs) == 0 {
		return json.Unmarshal([]byte("{}"), into)
	}
	return json.Unmarshal(j.envelope.Kwargs, into)
}

// BindArgs reads the arguments by position, each into its place. An argument that is not there leaves its place alone;
// more arguments than places are an error.
func (j *Job) BindArgs(into ...any) error {
	if j.envelope == nil {
		return errors.New("pinlater: a raw job has no arguments")
	}
	if len(j.envelope.Args) > len(into) {
		return fmt.Errorf("pinlater: %d arguments by position for %d places", len(j.envelope.Args), len(into))
	}
	for i, arg := range j.envelope.Args {
		if err := json.Unmarshal(arg, into[i]); err != nil {
			return fmt.Errorf("argument %d: %w", i, err)
		}
	}
	return nil
}

// Progress reports how far the job is, 0 to 1, with a text of at most 200 characters. It leaves within a second.
func (j *Job) Progress(fraction float64, text string) {
	j.mu.Lock()
	j.fraction, j.text = &fraction, &text
	j.mu.Unlock()
	j.worker.say(j)
}

// Log adds a line to the job's log, which keeps the last 100; a line has at most 1,024 bytes.
func (j *Job) Log(line string) {
	now, attempt := time.Now().UnixMilli(), int32(j.Attempt)
	made := wire.NewPinLaterLogLine()
	made.AtMillis, made.Attempt, made.Text = &now, &attempt, &line
	j.mu.Lock()
	// of two lines with the same time and text the server keeps one
	if last := len(j.lines) - 1; last >= 0 && *j.lines[last].AtMillis >= now {
		now = *j.lines[last].AtMillis + 1
	}
	j.lines = append(j.lines, made)
	if len(j.lines) > maxLogLines {
		j.lines = j.lines[len(j.lines)-maxLogLines:]
	}
	j.mu.Unlock()
	j.worker.say(j)
}

// Stopping is closed when the worker begins to stop. The job may go on; one that takes long had better end soon, as by
// Snooze(0) after it has saved how far it is.
func (j *Job) Stopping() <-chan struct{} { return j.worker.stopping }

// Cause tells why the job's context ended: ErrClaimLost, ErrCancelled, ErrTimeLimit or ErrStopped; nil: it has not.
func (j *Job) Cause() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.cause
}

// CancelledBy tells who asked that the job stops; "" where nobody did, or it is not known.
func (j *Job) CancelledBy() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.by
}

// stop ends the context. The first cause stays, but that a lost claim replaces any other.
func (j *Job) stop(cause error, by string) (isNews bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.cause == nil || cause == ErrClaimLost && j.cause != ErrClaimLost {
		j.cause, j.by, isNews = cause, by, true
	}
	if j.cancel != nil {
		j.cancel()
	}
	return isNews
}

// taken gives what the job has said since the last time.
func (j *Job) taken() (fraction *float64, text *string, lines []*wire.PinLaterLogLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	fraction, text, lines = j.fraction, j.text, j.lines
	j.fraction, j.text, j.lines = nil, nil, nil
	return fraction, text, lines
}

// untaken puts it back, where it did not get through; what the job has said meanwhile is newer.
func (j *Job) untaken(fraction *float64, text *string, lines []*wire.PinLaterLogLine) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.fraction == nil {
		j.fraction, j.text = fraction, text
	}
	j.lines = append(lines, j.lines...)
}

func (w *Worker) newJob(descriptor string, body []byte, data *wire.PinLaterDequeueMetadata) *Job {
	if data == nil {
		data = wire.NewPinLaterDequeueMetadata()
	}
	j := &Job{
		Descriptor: descriptor, Queue: queueOf(descriptor), Body: body, Priority: int(data.GetPriority()),
		AttemptsAllowed: int(data.GetAttemptsAllowed()), attemptsLeft: int(data.GetAttemptsRemaining()),
		EnqueuedAt: time.UnixMilli(data.GetEnqueuedAtMillis()), RunAfter: time.UnixMilli(data.GetRunAfterMillis()),
		runAfterMs: data.GetRunAfterMillis(), claim: data.GetClaimDescriptor(), worker: w,
	}
	if j.Attempt = j.AttemptsAllowed - j.attemptsLeft + 1; j.Attempt < 1 { // an operator gave it more of them
		j.Attempt = 1
	}
	return j
}

// oneLine is a text for a line of a status: no control characters, and not longer than that.
func oneLine(text string, most int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, strings.ToValidUTF8(text, "\ufffd"))
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most-3]) + "..."
	}
	return text
}
