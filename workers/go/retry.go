package pinlater

import (
	"errors"
	"math/rand"
	"sync"
	"time"
)

// Retry is a retry policy: when a job is tried again whose attempt failed.
type Retry struct {
	// Delay is the time to the next attempt, after the attempt of that number (1 for the first) failed with that error.
	// Below 0: there is none.
	Delay func(attempt int, err error) time.Duration
	// Retries is how many there are at most, unless HandlerOptions.Attempts says otherwise.
	Retries int
	// Jitter draws each delay from that share below to that share above.
	Jitter float64
}

// The figures of workers/pinlater_workers/jobs/retry.py.
const (
	defaultRetries = 10
	defaultJitter  = 0.1
	longestDelay   = time.Hour
)

// DefaultRetry has 10 retries: after 10, 20, 30, 40 and 50 s, then after twice as long each time, up to an hour.
func DefaultRetry() Retry {
	const step, linear = 10 * time.Second, 5
	return Retry{Retries: defaultRetries, Jitter: defaultJitter, Delay: func(attempt int, _ error) time.Duration {
		if attempt <= linear {
			return step * time.Duration(attempt)
		}
		return grown(step*linear, attempt-linear, longestDelay)
	}}
}

// ConstantRetry has 10 retries with the same delay.
func ConstantRetry(delay time.Duration) Retry {
	return Retry{Retries: defaultRetries, Jitter: defaultJitter, Delay: func(int, error) time.Duration { return delay }}
}

// ExponentialRetry has 10 retries: after first, then after twice as long each time, up to an hour.
func ExponentialRetry(first time.Duration) Retry {
	return Retry{Retries: defaultRetries, Jitter: defaultJitter, Delay: func(attempt int, _ error) time.Duration {
		return grown(first, attempt-1, longestDelay)
	}}
}

// NoRetry: the first failure is final.
func NoRetry() Retry {
	return Retry{Delay: func(int, error) time.Duration { return -1 }}
}

// after gives the delay, below 0 for none, where a job has that many attempts in all; 0: as the policy has it.
func (r Retry) after(attempt, attempts int, err error) time.Duration {
	if attempts == 0 {
		attempts = r.Retries + 1
	}
	if attempt >= attempts {
		return -1
	}
	delay := r.Delay(attempt, err)
	if delay <= 0 || r.Jitter == 0 {
		return delay
	}
	return time.Duration(float64(delay) * (1 + r.Jitter*(2*randomFloat()-1)))
}

// askedEnd is what a handler returns to choose how its attempt ends.
type askedEnd struct {
	kind  endKind
	after time.Duration
	cause error
}

type endKind int

const (
	askFail endKind = iota
	askRetry
	askSnooze
)

func (e *askedEnd) Error() string {
	if e.cause == nil {
		return [...]string{"failed", "to be tried again", "put off"}[e.kind]
	}
	return e.cause.Error()
}

func (e *askedEnd) Unwrap() error { return e.cause }

// Fail is returned by a handler whose job has failed for good, whatever attempts are left.
func Fail(reason string) error { return &askedEnd{kind: askFail, cause: errors.New(reason)} }

// FailWith is Fail with the error that it comes from.
func FailWith(err error) error { return &askedEnd{kind: askFail, cause: err} }

// RetryAfter is returned by a handler whose attempt failed; the next one comes after exactly that time. The error may
// be nil.
func RetryAfter(delay time.Duration, err error) error {
	return &askedEnd{kind: askRetry, after: delay, cause: err}
}

// Snooze is returned by a handler whose job is to come again after that time, with no attempt spent; beyond
// HandlerOptions.MaxSnoozes it fails. A raw job spends an attempt, as its body has no place for the count.
func Snooze(delay time.Duration) error { return &askedEnd{kind: askSnooze, after: delay} }

// random is the package's own, as the one of math/rand gives each process the same numbers in Go 1.19.
var random = struct {
	sync.Mutex
	*rand.Rand
}{Rand: rand.New(rand.NewSource(time.Now().UnixNano()))}

// randomFloat is from 0 to below 1.
func randomFloat() float64 {
	random.Lock()
	defer random.Unlock()
	return random.Float64()
}
