package dialback

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/text"
)

const (
	helloWithin  = 10 * time.Second // from the connection to a verified hello
	maxHello     = 4 << 10
	maxErrorText = 300
)

// Stream is an ordered byte stream to and from a host. While its data is not read, TCP's flow control makes the host
// wait. Read returns io.EOF when the agent has sent everything.
type Stream struct {
	net.Conn
	ws   *websocket.Conn
	once sync.Once
	done chan struct{}
}

// Close closes the stream on both sides immediately. Unread data is lost.
func (s *Stream) Close() error {
	err := errors.New("already closed")
	s.once.Do(func() {
		err = s.ws.CloseNow() // a closing handshake would wait for a host that no longer reads
		close(s.done)
	})
	return err
}

// ServeHTTP accepts a host's stream. It returns when the stream is closed.
func (x *Dialer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has sent the response
	}
	defer c.CloseNow()
	t, hello, err := x.greet(r.Context(), c)
	if err != nil {
		x.cfg.Log.Warn("a dialled stream is refused", "address", r.RemoteAddr, "host", hello.Host, "err", err)
		_ = c.Close(websocket.StatusPolicyViolation, "refused")
		return
	}
	if hello.Error != "" {
		select {
		case t.failed <- fault.New(fault.Unavailable, "The host cannot serve it: %s",
			text.OneLine(text.Clip(hello.Error, maxErrorText))):
		case <-t.over:
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
		return
	}
	s := &Stream{
		ws:   c,
		Conn: websocket.NetConn(context.WithoutCancel(r.Context()), c, websocket.MessageBinary),
		done: make(chan struct{}),
	}
	select {
	case t.stream <- s:
		<-s.done
	case <-t.over:
		s.Close()
	}
}

// greet reads the hello and takes the ticket in it. If the hello is forged, the ticket stays valid for its host.
func (x *Dialer) greet(ctx context.Context, c *websocket.Conn) (*ticket, agentapi.StreamHello, error) {
	ctx, cancel := context.WithTimeout(ctx, helloWithin)
	defer cancel()
	c.SetReadLimit(maxHello)
	var hello agentapi.StreamHello
	_, data, err := c.Read(ctx)
	if err != nil {
		return nil, hello, err
	}
	if err := json.Unmarshal(data, &hello); err != nil {
		return nil, hello, err
	}
	h, ok := x.peek(hello.Ticket)
	if !ok || h.String() != hello.Host {
		return nil, hello, errors.New("no such ticket: expired, used, or another host's")
	}
	keys, err := host.LinkKeys(ctx, x.db.Q, h)
	if err != nil {
		return nil, hello, err
	}
	if !signed(keys, &hello) {
		return nil, hello, errors.New("not signed by the host's link key")
	}
	t := x.take(hello.Ticket)
	if t == nil {
		return nil, hello, errors.New("the ticket was used in the same moment")
	}
	return t, hello, nil
}

func signed(keys []string, hello *agentapi.StreamHello) bool {
	proof := agentapi.StreamProof(hello.Host, hello.Ticket)
	for _, k := range keys {
		key, err := nkeys.FromPublicKey(k)
		if err == nil && key.Verify(proof, hello.Signature) == nil {
			return true
		}
	}
	return false
}
