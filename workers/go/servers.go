package pinlater

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
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
	// A name is looked up again after so long, or so soon where a server failed.
	lookUpEvery, lookUpSoon = 15 * time.Second, time.Second
	lookUpTimeout           = 5 * time.Second
	// dnsPrefix stands before a name that is all its addresses.
	dnsPrefix = "dns:"
)

// server is one of the addresses, and how it fares.
type server struct {
	// address is HOST:PORT, or dns:NAME:PORT of a name without a known address; unknown says why.
	address string
	unknown error
	// name is what its certificate is for.
	name     string
	failures int
	outUntil time.Time
	isGone   bool // its name has it no more
}

// target is what the configuration names: a server, or all addresses of a name.
type target struct {
	host, port string
	isName     bool
	found      []string // the last answer
	why        error    // there is none yet
}

// servers carries calls to whichever server answers, over connections of its own.
type servers struct {
	tls     *tls.Config
	context func(renew bool) *wire.RequestContext
	onBreak func()
	// isLong: its connections are kept for as long as they stand.
	isLong bool

	targets []*target
	lookup  func(ctx context.Context, host string) ([]string, error)

	room     chan struct{}
	mu       sync.Mutex
	all      []*server
	hasNames bool
	looking  chan struct{} // closed when the look-up that is under way has ended; nil: none is
	lookedAt time.Time
	lookAt   time.Time // zero: at once
	next     int
	idle     []*connection
	closed   bool
}

func newServers(config *Config, tls *tls.Config, context func(bool) *wire.RequestContext) *servers {
	s := &servers{
		tls: tls, context: context, lookup: config.LookupHost,
		room: make(chan struct{}, maxConnections), next: int(randomFloat() * (1 << 16)),
	}
	for _, address := range config.Servers {
		host, port, _ := net.SplitHostPort(strings.TrimPrefix(address, dnsPrefix)) // NewClient has checked it
		isName := strings.HasPrefix(address, dnsPrefix)
		s.targets = append(s.targets, &target{host: host, port: port, isName: isName, why: errors.New("no answer in time")})
		s.hasNames = s.hasNames || isName
	}
	s.arrange()
	return s
}

// refresh sees to it that names are looked up when it is time, and waits where no server is known at all. As long as a
// look-up fails, the last answer counts.
func (s *servers) refresh(ctx context.Context) {
	s.mu.Lock()
	if s.hasNames && s.looking == nil && !time.Now().Before(s.lookAt) {
		s.looking = make(chan struct{})
		go s.look(s.looking)
	}
	looking, isKnown := s.looking, s.all[0].unknown == nil
	s.mu.Unlock()
	if looking != nil && !isKnown {
		select {
		case <-looking:
		case <-ctx.Done():
		}
	}
}

func (s *servers) look(done chan struct{}) {
	defer close(done)
	ctx, cancel := context.WithTimeout(context.Background(), lookUpTimeout)
	defer cancel()
	for _, each := range s.targets {
		if !each.isName {
			continue
		}
		found, err := s.lookup(ctx, each.host)
		s.mu.Lock()
		if len(found) > 0 && err == nil {
			each.found = found
		} else if each.why = err; err == nil {
			each.why = errors.New("the name has no address")
		}
		s.mu.Unlock()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrange()
	s.looking, s.lookedAt = nil, time.Now()
	if s.lookAt = s.lookedAt.Add(lookUpEvery); s.all[0].unknown != nil {
		s.lookAt = s.lookedAt // by the next call
	}
}

// arrange makes the list of servers, of which there is one at least. Those that stay keep their health and their
// connections; those that are gone get no new calls. Under the lock.
func (s *servers) arrange() {
	known := map[[2]string]*server{}
	for _, each := range s.all {
		each.isGone = true
		known[[2]string{each.address, each.name}] = each
	}
	s.all = nil
	for _, each := range s.targets {
		addresses := each.found
		if !each.isName {
			addresses = []string{each.host}
		}
		for _, address := range addresses {
			key := [2]string{net.JoinHostPort(address, each.port), each.host}
			if known[key] == nil {
				known[key] = &server{address: key[0], name: key[1], isGone: true}
			}
			if known[key].isGone { // else it is there twice
				known[key].isGone = false
				s.all = append(s.all, known[key])
			}
		}
	}
	if len(s.all) == 0 {
		for _, each := range s.targets {
			address := dnsPrefix + net.JoinHostPort(each.host, each.port)
			s.all = append(s.all, &server{address: address, name: each.host, unknown: each.why})
		}
	}
	s.leave()
}

func (s *servers) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.all)
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
		s.refresh(within)
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
		if other && len(tried) < s.count() {
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
// Those that were tried are left out, unless all are.
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
		each := s.all[s.next%len(s.all)]
		s.next++
		if !tried[each] && each.outUntil.Before(now) {
			return each
		}
		isSooner := best == nil || each.outUntil.Before(best.outUntil)
		if best == nil || tried[best] && !tried[each] || tried[best] == tried[each] && isSooner {
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
	if soon := s.lookedAt.Add(lookUpSoon); soon.Before(s.lookAt) { // perhaps its name has other addresses now
		s.lookAt = soon
	}
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
	if c.server.isGone {
		s.leave()
	}
}

// leave closes the idle connections to servers that are gone from their names. Claims that were bound to one are kept by
// another. Under the lock.
func (s *servers) leave() {
	s.keep(func(c *connection) bool {
		if c.server.isGone && s.onBreak != nil {
			go s.onBreak()
		}
		return !c.server.isGone
	})
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
