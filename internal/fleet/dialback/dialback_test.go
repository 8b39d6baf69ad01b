package dialback_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/dialback"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

const patience = time.Minute

// site is a dialer behind TLS and one enrolled host, whose dials arrive in dials.
type site struct {
	t      *testing.T
	dialer *dialback.Dialer
	http   *http.Client
	agent  *fleettest.Agent
	dials  chan agentapi.Dial
}

func newSite(t *testing.T, ttl time.Duration) *site {
	t.Helper()
	d := dbtest.New(t)
	org, user := fleettest.Org(t, d)
	s := &site{t: t, agent: fleettest.Enroll(t, d, org, user, 1), dials: make(chan agentapi.Dial, 1)}
	ns, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, NoLog: true, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	ns.Start()
	t.Cleanup(ns.Shutdown)
	if !ns.ReadyForConnections(patience) {
		t.Fatal("NATS did not start")
	}
	nc, err := nats.Connect(ns.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe(agentapi.SubjectDial(s.agent.Host.String()), func(m *nats.Msg) {
		var d agentapi.Dial
		if json.Unmarshal(m.Data, &d) == nil {
			s.dials <- d
		}
	}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	s.dialer = dialback.New(d, bus.New(nc, nc), dialback.Config{StreamURL: srv.URL, TicketTTL: ttl})
	srv.Config.Handler = s.dialer
	s.http = srv.Client()
	return s
}

type opened struct {
	stream *dialback.Stream
	err    error
}

// open asks for a stream; the host's dial is returned, and the outcome comes later.
func (s *site) open() (agentapi.Dial, <-chan opened) {
	s.t.Helper()
	out := make(chan opened, 1)
	go func() {
		v, err := s.dialer.Open(s.t.Context(), s.agent.Host, agentapi.Dial{
			LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 2}, Purpose: agentapi.PurposeLogs, Tail: 10,
		})
		out <- opened{v, err}
	}()
	return get(s.t, s.dials), out
}

func get[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatal("nothing came")
		panic("unreachable")
	}
}

// dialBack is the agent's side: hello as given, signed by the agent with these keys.
func (s *site) dialBack(d agentapi.Dial, by *fleettest.Agent, change func(*agentapi.StreamHello)) *websocket.Conn {
	s.t.Helper()
	hello := agentapi.StreamHello{Host: s.agent.Host.String(), Ticket: d.Ticket}
	var err error
	if hello.Signature, err = by.Link.Sign(agentapi.StreamProof(hello.Host, hello.Ticket)); err != nil {
		s.t.Fatal(err)
	}
	if change != nil {
		change(&hello)
	}
	c, _, err := websocket.Dial(s.t.Context(), d.URL, &websocket.DialOptions{HTTPClient: s.http})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.CloseNow() })
	data, _ := json.Marshal(hello)
	if err := c.Write(s.t.Context(), websocket.MessageText, data); err != nil {
		s.t.Fatal(err)
	}
	return c
}

// refused waits until the server has closed the connection for good reason.
func (s *site) refused(c *websocket.Conn) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if _, _, err := c.Read(ctx); websocket.CloseStatus(err) != websocket.StatusPolicyViolation {
		s.t.Errorf("not refused: %v", err)
	}
}

func TestAStreamComesBack(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	d, out := s.open()
	if !strings.HasPrefix(d.URL, "wss://127.0.0.1:") || !strings.HasSuffix(d.URL, agentapi.StreamPath) || d.Epoch != 2 ||
		d.Tail != 10 {
		t.Errorf("%+v", d)
	}
	c := s.dialBack(d, s.agent, nil)
	go func() {
		for range 3 {
			_ = c.Write(t.Context(), websocket.MessageBinary, []byte("line\n"))
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
	}()
	o := get(t, out)
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer o.stream.Close()
	if got, err := io.ReadAll(o.stream); err != nil || string(got) != "line\nline\nline\n" {
		t.Errorf("%q, %v", got, err)
	}
	s.refused(s.dialBack(d, s.agent, nil)) // the ticket a second time
}

func TestTheHostWaitsWhileNobodyReads(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	d, out := s.open()
	c := s.dialBack(d, s.agent, nil)
	const chunk, chunks = 64 << 10, 1024 // 64 MB: far more than any buffer on the way
	sent := make(chan int, chunks)
	go func() {
		defer close(sent)
		for n := range chunks {
			if c.Write(t.Context(), websocket.MessageBinary, make([]byte, chunk)) != nil {
				return
			}
			sent <- n
		}
		_ = c.Close(websocket.StatusNormalClosure, "")
	}()
	o := get(t, out)
	if o.err != nil {
		t.Fatal(o.err)
	}
	defer o.stream.Close()
	if _, err := io.ReadFull(o.stream, make([]byte, chunk)); err != nil {
		t.Fatal(err)
	}
	if len(sent) == chunks {
		t.Error("the host could send everything although nobody read")
	}
	if n, err := io.Copy(io.Discard, o.stream); err != nil || n != chunk*(chunks-1) {
		t.Errorf("%d bytes, %v", n, err)
	}
}

func TestForgedHellosLeaveTheTicketToItsHost(t *testing.T) {
	t.Parallel()
	s := newSite(t, 0)
	d, out := s.open()
	stranger := fleettest.NewAgent(t)
	s.refused(s.dialBack(d, stranger, nil))
	s.refused(s.dialBack(d, s.agent, func(h *agentapi.StreamHello) { h.Host = id.New[id.Host]().String() }))
	s.refused(s.dialBack(d, s.agent, func(h *agentapi.StreamHello) { h.Ticket = "guessed" }))
	s.refused(s.dialBack(d, s.agent, func(h *agentapi.StreamHello) { h.Signature = nil }))
	c := s.dialBack(d, s.agent, nil)
	o := get(t, out)
	if o.err != nil {
		t.Fatal(o.err)
	}
	if err := o.stream.Close(); err != nil {
		t.Error(err)
	}
	if _, _, err := c.Read(t.Context()); err == nil {
		t.Error("the agent does not see that the stream was closed")
	}
}

func TestOpenFailsWithTheReason(t *testing.T) {
	t.Parallel()
	t.Run("expired", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 50*time.Millisecond)
		for asked := false; !asked; { // where the machine is slow it may be over before the host is asked
			if _, err := s.dialer.Open(t.Context(), s.agent.Host, agentapi.Dial{}); !fault.Is(err, fault.Unavailable) ||
				!strings.Contains(err.Error(), "in time") {
				t.Fatal(err)
			}
			select {
			case d := <-s.dials:
				asked = true
				s.refused(s.dialBack(d, s.agent, nil))
			default:
			}
		}
	})
	t.Run("away", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 0)
		if _, err := s.dialer.Open(t.Context(), id.New[id.Host](), agentapi.Dial{}); !fault.Is(err, fault.Unavailable) ||
			!strings.Contains(err.Error(), "not connected") {
			t.Errorf("%v", err)
		}
	})
	t.Run("unwilling", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 0)
		d, out := s.open()
		s.dialBack(d, s.agent, func(h *agentapi.StreamHello) { h.Error = "no such lease" })
		if o := get(t, out); !fault.Is(o.err, fault.Unavailable) || !strings.Contains(o.err.Error(), "no such lease") {
			t.Errorf("%v", o.err)
		}
	})
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		s := newSite(t, 0)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.dialer.Open(ctx, s.agent.Host, agentapi.Dial{}); err == nil {
			t.Error("opened")
		}
	})
}
