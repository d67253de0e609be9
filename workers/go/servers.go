package pinlater

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"pinlater/workers/go/internal/wire"
)

// The figures of the Python client (pinlater/client: retry.py, server_list.py, pool.py).
const (
	firstBackoff   = 50 * time.Millisecond
	longestBackoff = 2 * time.Second
	firstPause     = 100 * time.Millisecond
	longestPause   = 10 * time.Second
	maxConnections = 256
	maxIdle        = 20 * time.Second
	// About how long calls stay with one of several servers.
	stay = time.Minute
)

// server is one of the addresses, and how it fares.
type server struct {
	address  string
	failures int
	outUntil time.Time
}

// servers carries calls to whichever server answers, over connections of its own.
type servers struct {
	tls     *tls.Config
	context func(renew bool) *wire.RequestContext
	onBreak func()
	// isLong: its connections are kept for as long as they stand.
	isLong bool

	room   chan struct{}
	mu     sync.Mutex
	all    []*server
	next   int
	idle   []*connection
	closed bool
}

func newServers(config *Config, tls *tls.Config, context func(bool) *wire.RequestContext) *servers {
	s := &servers{tls: tls, context: context, room: make(chan struct{}, maxConnections)}
	for _, address := range config.Servers {
		s.all = append(s.all, &server{address: address})
	}
	s.next = int(randomFloat() * float64(len(s.all)))
	return s
}

// calling is how a call is to be made.
type calling struct {
	// timeout of all attempts together, and in it how long a server may hold back its answer.
	timeout, held time.Duration
	// repeat: it may be sent again where it may have been carried out.
	repeat bool
	// once: it is sent to one server, and the caller decides what follows.
	once bool
	// onSent is called when its bytes have left.
	onSent func()
}

type callFunc func(ctx context.Context, client *wire.PinLaterClient, caller *wire.RequestContext) error

// method is a call of the interface, whose answer is of type R.
type method[Q, R any] func(*wire.PinLaterClient, context.Context, *wire.RequestContext, Q) (R, error)

// ask makes a call that has an answer.
func ask[Q, R any](ctx context.Context, of *servers, how calling, do method[Q, R], request Q) (answer R, err error) {
	err = of.call(ctx, how, func(ctx context.Context, to *wire.PinLaterClient, caller *wire.RequestContext) (err error) {
		answer, err = do(to, ctx, caller, request)
		return err
	})
	return answer, err
}

// tell makes a call that has none.
func tell[Q any](
	ctx context.Context, of *servers, how calling,
	do func(*wire.PinLaterClient, context.Context, *wire.RequestContext, Q) error, request Q,
) error {
	return of.call(ctx, how, func(ctx context.Context, to *wire.PinLaterClient, caller *wire.RequestContext) error {
		return do(to, ctx, caller, request)
	})
}

// call makes a call, at as many servers and as often as its time allows and its kind permits. The error is an *Error.
func (s *servers) call(ctx context.Context, how calling, do callFunc) error {
	deadline := time.Now().Add(how.timeout)
	within, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	select {
	case s.room <- struct{}{}:
		defer func() { <-s.room }()
	case <-within.Done():
		return verdict(ctx, &callFailed{why: errors.New("no connection was free")}, false)
	}
	tried, round, maybe, caller := map[*server]bool{}, 0, false, s.context(false)
	for {
		to := s.pick(tried)
		attempt, end := within, context.CancelFunc(func() {})
		if how.repeat && round == 0 && len(tried) == 0 { // half of the time: a second attempt is safe, and may be quick
			attempt, end = context.WithTimeout(within, how.held+(how.timeout-how.held)/2)
		}
		err := s.attempt(attempt, to, how.onSent, caller, do)
		end()
		if err == nil {
			return nil
		}
		var refused *Error
		var failed *callFailed
		again, other, pause := false, false, time.Duration(0)
		if errors.As(err, &refused) {
			again, other, pause = refused.maySendAgain(how.repeat), refused.Reason == "DRAINING", refused.RetryAfter
			if refused.Reason == ErrForbidden.Reason {
				if renewed := s.context(true); renewed.GetToken() != caller.GetToken() { // it was exchanged
					again, caller = true, renewed
				}
			}
		} else if errors.As(err, &failed) {
			maybe = maybe || failed.sent
			again, other = how.repeat || !failed.sent, true
		}
		if other && ctx.Err() == nil {
			s.failed(to)
		}
		if how.once || !again || within.Err() != nil {
			return verdict(ctx, err, maybe)
		}
		tried[to] = true
		if other && len(tried) < len(s.all) {
			continue
		}
		tried = map[*server]bool{}
		if pause == 0 {
			pause = time.Duration(randomFloat() * float64(grown(firstBackoff, round, longestBackoff)))
		}
		round++
		if time.Until(deadline) <= pause {
			return verdict(ctx, err, maybe)
		}
		wait(within, pause)
	}
}

// verdict is what the caller gets.
func verdict(ctx context.Context, err error, maybe bool) error {
	var refused *Error
	if errors.As(err, &refused) {
		return refused
	}
	made := &Error{Reason: ErrUnreachable.Reason, Message: err.Error(), Retryable: true, cause: err}
	if maybe {
		made.Reason = ErrOutcomeUnknown.Reason
	}
	if ctx.Err() != nil {
		made.cause = ctx.Err()
	}
	return made
}

func (s *servers) attempt(
	ctx context.Context, to *server, onSent func(), caller *wire.RequestContext, do callFunc,
) error {
	c, err := s.connection(ctx, to)
	if err != nil {
		return &callFailed{why: fmt.Errorf("%s: %w", to.address, err)}
	}
	c.onSent = onSent
	err = do(ctx, wire.NewPinLaterClient(c), caller)
	c.onSent = nil
	var exception *wire.PinLaterException
	var application thrift.TApplicationException
	if errors.As(err, &exception) {
		err = fromException(exception)
	} else if errors.As(err, &application) && !errors.As(err, new(*Error)) {
		err = &Error{Reason: "PROTOCOL_ERROR", Message: application.Error(), cause: application}
	}
	s.put(c)
	return err
}

// pick gives a server that has a free connection; else the one whose turn it is; else the one whose pause ends first.
// Those that were tried are left out.
func (s *servers) pick(tried map[*server]bool) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.keep(func(c *connection) bool {
		old := time.Since(c.used) > maxIdle || len(s.all) > 1 && time.Since(c.made) > stay
		return s.isLong || !old
	})
	for _, each := range s.idle {
		if !tried[each.server] && each.server.outUntil.Before(now) {
			return each.server
		}
	}
	var best *server
	for range s.all {
		each := s.all[s.next]
		s.next = (s.next + 1) % len(s.all)
		if tried[each] {
			continue
		}
		if each.outUntil.Before(now) {
			return each
		}
		if best == nil || each.outUntil.Before(best.outUntil) {
			best = each
		}
	}
	return best
}

// keep closes all other idle connections.
func (s *servers) keep(wanted func(*connection) bool) {
	kept := s.idle[:0]
	for _, each := range s.idle {
		if !each.isBroken() && wanted(each) {
			kept = append(kept, each)
		} else {
			each.close(errors.New("it is not used any more"))
		}
	}
	s.idle = kept
}

func (s *servers) failed(to *server) {
	s.mu.Lock()
	defer s.mu.Unlock()
	to.outUntil = time.Now().Add(grown(firstPause, to.failures, longestPause))
	to.failures++
	s.keep(func(c *connection) bool { return c.server != to })
}

// connection gives one that stands, or a new one.
func (s *servers) connection(ctx context.Context, to *server) (*connection, error) {
	s.mu.Lock()
	for i, each := range s.idle {
		if each.server == to && !each.isBroken() {
			s.idle = append(s.idle[:i], s.idle[i+1:]...)
			s.mu.Unlock()
			return each, nil
		}
	}
	s.mu.Unlock()
	return connect(ctx, to, s.tls, s.onBreak)
}

func (s *servers) put(c *connection) {
	if c.isBroken() {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.close(errors.New("the client is closed"))
		return
	}
	c.server.failures = 0
	s.idle = append(s.idle, c)
}

// hasStayed tells whether it is time for the next of several servers.
func (s *servers) hasStayed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all) > 1 && len(s.idle) > 0 && time.Since(s.idle[0].made) > stay
}

// renew closes the connections that carry no call; the next call goes to the next server.
func (s *servers) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keep(func(*connection) bool { return false })
}

func (s *servers) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.renew()
}

// grown doubles, times times, up to a bound.
func grown(first time.Duration, times int, bound time.Duration) time.Duration {
	if times > 16 || first<<times > bound {
		return bound
	}
	return first << times
}

func wait(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
