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

// Stream is one stream from a host: bytes in order, both ways. While nobody reads, the host waits: TCP's flow control
// goes all the way. Read ends with io.EOF when the agent has sent all.
type Stream struct {
	net.Conn
	ws   *websocket.Conn
	once sync.Once
	done chan struct{}
}

// Close ends the stream on both sides, at once: what was not read is lost.
func (s *Stream) Close() error {
	err := errors.New("already closed")
	s.once.Do(func() {
		err = s.ws.CloseNow() // a closing handshake would wait for a host that has stopped reading
		close(s.done)
	})
	return err
}

// ServeHTTP takes a host's stream: it answers until the stream is closed.
func (x *Dialer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // Accept has answered
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

// greet reads the hello and gives out the ticket it shows. A forged hello leaves the ticket to the host it is for.
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
