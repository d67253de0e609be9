package pinlater

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/apache/thrift/lib/go/thrift"
)

const (
	connectTimeout = 2 * time.Second
	// Servers send frames of 16 MiB unless their --max-frame is set; what is larger is no server of ours.
	maxFrame = 128 << 20
	// Beyond this a write may have to wait for the server to read.
	largeFrame = 32 << 10
)

var protocolConfig = &thrift.TConfiguration{MaxMessageSize: maxFrame, MaxFrameSize: maxFrame}

// callFailed: no answer. Where it was not sent, the server surely never saw the call.
type callFailed struct {
	why  error
	sent bool
}

func (f *callFailed) Error() string { return f.why.Error() }
func (f *callFailed) Unwrap() error { return f.why }

// connection carries one call at a time, as a thrift.TClient. A goroutine reads, so that a break is noticed at once,
// also between two calls: claims may be bound to the connection.
type connection struct {
	net.Conn
	server  *server
	made    time.Time
	used    time.Time
	seq     int32
	onSent  func()
	onBreak func()
	answers chan []byte
	broken  chan struct{}
	once    sync.Once
	why     error
}

func connect(ctx context.Context, to *server, config *tls.Config, onBreak func()) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	if to.unknown != nil {
		return nil, to.unknown
	}
	raw, err := (&net.Dialer{}).DialContext(ctx, "tcp", to.address)
	if err != nil {
		return nil, err
	}
	if config != nil {
		config = config.Clone()
		config.ServerName = to.name
		secure := tls.Client(raw, config)
		if err := secure.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, err
		}
		raw = secure
	}
	now := time.Now()
	c := &connection{
		Conn: raw, server: to, made: now, used: now, onBreak: onBreak,
		answers: make(chan []byte, 1), broken: make(chan struct{}),
	}
	go c.read()
	return c, nil
}

func (c *connection) read() {
	reader := bufio.NewReaderSize(c.Conn, 64<<10)
	for {
		var head [4]byte
		_, err := io.ReadFull(reader, head[:])
		var frame bytes.Buffer
		if size := int64(binary.BigEndian.Uint32(head[:])); err == nil && size > maxFrame {
			err = fmt.Errorf("%s is no port of a PinLater server, or not with this kind of connection (TLS?)", c.server.address)
		} else if err == nil {
			_, err = io.CopyN(&frame, reader, size) // no room is made for more than comes
		}
		if err == nil {
			select {
			case c.answers <- frame.Bytes():
				continue
			default:
				err = errors.New("an answer that nobody waits for")
			}
		}
		if errors.Is(err, io.EOF) {
			err = errors.New("the server closed the connection")
		}
		if c.close(err) && c.onBreak != nil {
			c.onBreak()
		}
		return
	}
}

// close tells whether this is what ended the connection.
func (c *connection) close(why error) (ended bool) {
	c.once.Do(func() {
		ended = true
		c.why = why
		close(c.broken)
		c.Conn.Close()
	})
	return ended
}

// isBroken tells whether no more calls go over it.
func (c *connection) isBroken() bool {
	select {
	case <-c.broken:
		return true
	default:
		return false
	}
}

// Call sends one call and waits for its answer, until the context ends: then the connection is closed, as a late
// answer would be taken for the next one's.
func (c *connection) Call(ctx context.Context, method string, args, result thrift.TStruct) (thrift.ResponseMeta, error) {
	none := thrift.ResponseMeta{}
	c.seq++
	out := thrift.NewTMemoryBuffer()
	out.Write(make([]byte, 4))
	client := thrift.NewTStandardClient(nil, nil)
	if err := client.Send(ctx, thrift.NewTBinaryProtocolConf(out, protocolConfig), c.seq, method, args); err != nil {
		return none, &Error{Reason: "REQUEST_INVALID", Message: err.Error(), cause: err}
	}
	frame := out.Bytes()
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-4))
	if err := c.write(ctx, frame); err != nil {
		return none, err
	}
	if c.onSent != nil {
		c.onSent()
	}
	var answer []byte
	select {
	case answer = <-c.answers:
	case <-ctx.Done():
		c.close(ctx.Err())
		return none, &callFailed{why: fmt.Errorf("%s got no answer: %w", method, ctx.Err()), sent: true}
	case <-c.broken:
		select {
		case answer = <-c.answers: // it was there before the end
		default:
			return none, &callFailed{why: c.why, sent: true}
		}
	}
	in := &thrift.TMemoryBuffer{Buffer: bytes.NewBuffer(answer)}
	if err := client.Recv(ctx, thrift.NewTBinaryProtocolConf(in, protocolConfig), c.seq, method, result); err != nil {
		c.close(err)
		return none, &Error{Reason: "PROTOCOL_ERROR", Message: c.server.address + ": " + err.Error(), cause: err}
	}
	c.used = time.Now()
	return none, nil
}

func (c *connection) write(ctx context.Context, frame []byte) error {
	if c.isBroken() {
		return &callFailed{why: c.why}
	}
	deadline, _ := ctx.Deadline()
	c.SetWriteDeadline(deadline)
	if len(frame) > largeFrame {
		written := make(chan struct{})
		defer close(written)
		go func() {
			select {
			case <-ctx.Done():
				c.SetWriteDeadline(time.Now())
			case <-written:
			}
		}()
	}
	sent, err := c.Write(frame)
	if err != nil {
		c.close(err)
		return &callFailed{why: err, sent: sent > 0}
	}
	return nil
}
