package pinlater

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"pinlater/workers/go/internal/wire"
)

// Error is what a server refused, or why no server answered.
//
// Reason is a stable word for programs (docs/errors.md has all of them). Two errors with the same Reason are the same
// to errors.Is, so that
//
//	errors.Is(err, pinlater.ErrQueueNotFound)
//
// holds for each error with that Reason.
type Error struct {
	Reason  string
	Message string
	// Retryable tells whether the same call may be made again. After ErrOutcomeUnknown an enqueue may then store its jobs
	// a second time, unless they have a SendID of their own.
	Retryable bool
	// RetryAfter is how long to wait before that; 0: it is not known.
	RetryAfter time.Duration
	// Descriptors is what of an enqueue is stored that failed in part, in the order of its jobs; "" for one that is not.
	Descriptors []string

	code        wire.ErrorCode
	acksApplied bool
	cause       error
}

// Errors to compare with, by errors.Is.
var (
	// ErrUnreachable: no server answered, and nothing was changed.
	ErrUnreachable = &Error{Reason: "SERVER_UNREACHABLE"}
	// ErrOutcomeUnknown: the call was sent, and perhaps carried out.
	ErrOutcomeUnknown = &Error{Reason: "OUTCOME_UNKNOWN"}
	// ErrQueueNotFound: the queue was never created, or is deleted.
	ErrQueueNotFound = &Error{Reason: "QUEUE_NOT_FOUND"}
	// ErrDuplicate: a job with OnDuplicate Reject, whose DedupeKey is taken.
	ErrDuplicate = &Error{Reason: "DUPLICATE"}
	// ErrForbidden: the caller may not do that, or its token is not known.
	ErrForbidden = &Error{Reason: "FORBIDDEN"}
)

// Why the context of a running job was cancelled: see Job.Cause.
var (
	// ErrClaimLost: another worker has the job, or its queue is gone. What the handler returns is dropped.
	ErrClaimLost = errors.New("the claim is lost")
	// ErrCancelled: somebody asked that the job stops. A success still counts; any other end is "cancelled".
	ErrCancelled = errors.New("cancelled")
	// ErrTimeLimit: the attempt is over its time limit, and has failed. What the handler returns is dropped.
	ErrTimeLimit = errors.New("it ran longer than its time limit")
	// ErrStopped: the worker ends, and the time that it gives to running jobs is over. The job is handed back.
	ErrStopped = errors.New("the worker stops")
)

// ErrJobGone: the job is not there, or not any more.
var ErrJobGone = errors.New("pinlater: the job is not there")

func (e *Error) Error() string { return fmt.Sprintf("pinlater: %s: %s", e.Reason, e.Message) }

// Is tells whether target is an Error with the same Reason.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && other.Reason == e.Reason
}

// Unwrap gives what the error came from, such as context.Canceled.
func (e *Error) Unwrap() error { return e.cause }

// timeLimitExceeded is ErrTimeLimit with the limit, in the words of the Python framework.
type timeLimitExceeded time.Duration

func (t timeLimitExceeded) Error() string {
	return fmt.Sprintf("TimeLimitExceeded: it ran longer than %g s", time.Duration(t).Seconds())
}

func (timeLimitExceeded) Is(target error) bool { return target == ErrTimeLimit }

func fromException(e *wire.PinLaterException) *Error {
	made := &Error{
		Reason: e.GetReason(), Message: e.Message, code: e.ErrorCode, Retryable: e.GetRetryable(),
		RetryAfter: millis(e.GetRetryAfterMillis()), Descriptors: e.JobDescriptors, acksApplied: e.GetAcksApplied(),
	}
	if made.Reason == "" {
		made.Reason = e.ErrorCode.String()
	}
	made.Message = strings.TrimPrefix(made.Message, made.Reason+": ")
	return made
}

// maySendAgain tells whether the call that was refused so may be sent again without the caller. Without repeat not
// where it may have been carried out: pinlater/client/retry.py has the same rules.
func (e *Error) maySendAgain(repeat bool) bool {
	switch {
	case e.code == wire.ErrorCode_ENQUEUE_REJECTED || e.Reason == "QUEUE_PAUSED":
		return false // an operator decided so, and the caller learns of it at once
	case e.code == wire.ErrorCode_SHARD_CONNECTION_FAILED && (e.Reason == ErrOutcomeUnknown.Reason || e.Reason == e.code.String()):
		return e.Retryable && repeat
	}
	return e.Retryable
}

func millis(ms int64) time.Duration { return time.Duration(ms) * time.Millisecond }
