package stream

import (
	"bufio"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// source gives n lines, then err; with follow it goes on until the reader leaves.
type source struct {
	n     int
	err   error
	given atomic.Int64
	left  chan struct{}
}

func (s *source) Logs(ctx context.Context, _ agentapi.LeaseRef, _ int, follow bool,
	emit func(agentapi.LogFrame) error) error {
	defer close(s.left)
	for i := 0; follow || i < s.n; i++ {
		if err := emit(agentapi.LogFrame{TimeMS: int64(i), Line: strings.Repeat("x", 1000)}); err != nil {
			return err
		}
		s.given.Add(1)
	}
	return s.err
}

func (s *source) KeptLog(ctx context.Context, ref agentapi.LeaseRef, emit func(agentapi.LogFrame) error) error {
	return s.Logs(ctx, ref, 0, false, emit)
}

// replica takes one stream and hands its hello and its bytes to the test.
type replica struct {
	url    string
	dialer *Dialer
	source *source
	hellos chan agentapi.StreamHello
	conns  chan *websocket.Conn
	done   chan struct{} // closed: the replica may let the connection go
}

func newReplica(t *testing.T, s *source) *replica {
	t.Helper()
	r := &replica{
		source: s,
		hellos: make(chan agentapi.StreamHello, 1),
		conns:  make(chan *websocket.Conn, 1),
		done:   make(chan struct{}),
	}
	s.left = make(chan struct{})
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws, err := websocket.Accept(w, req, nil)
		if err != nil {
			t.Error(err)
			return
		}
		_, b, err := ws.Read(req.Context())
		var hello agentapi.StreamHello
		if err = errors.Join(err, json.Unmarshal(b, &hello)); err != nil {
			t.Error(err)
		}
		r.hellos <- hello
		r.conns <- ws
		<-r.done
	}))
	t.Cleanup(web.Close)
	t.Cleanup(func() { close(r.done) })
	r.url = "wss" + strings.TrimPrefix(web.URL, "https") + agentapi.StreamPath
	var err error
	r.dialer, err = New(Config{Host: "host_1", Domain: "127.0.0.1", Source: s, Log: slog.New(slog.DiscardHandler),
		CA:   string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})),
		Sign: func(b []byte) ([]byte, error) { return append([]byte("signed:"), b...), nil }})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *replica) serve(t *testing.T, purpose string, follow bool) <-chan error {
	ended := make(chan error, 1)
	go func() {
		ended <- r.dialer.Serve(t.Context(), agentapi.Dial{URL: r.url, Ticket: "t1", Purpose: purpose, Follow: follow})
	}()
	return ended
}

func TestALogComesWhole(t *testing.T) {
	t.Parallel()
	r := newReplica(t, &source{n: 3000})
	ended := r.serve(t, agentapi.PurposeKeptLog, false)
	if h := <-r.hellos; h.Host != "host_1" || h.Ticket != "t1" ||
		string(h.Signature) != "signed:muster-stream-v1|host_1|t1" || h.Error != "" {
		t.Errorf("hello %+v", h)
	}
	lines := bufio.NewScanner(websocket.NetConn(t.Context(), <-r.conns, websocket.MessageBinary))
	n := int64(0)
	for lines.Scan() {
		var f agentapi.LogFrame
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil || f.TimeMS != n {
			t.Fatalf("line %d: %s %v", n, lines.Bytes(), err)
		}
		n++
	}
	if n != 3000 || lines.Err() != nil {
		t.Errorf("%d lines, %v", n, lines.Err())
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestASlowReaderSlowsTheReading(t *testing.T) {
	t.Parallel()
	r := newReplica(t, &source{})
	ended := r.serve(t, agentapi.PurposeLogs, true)
	<-r.hellos
	ws := <-r.conns
	// The client does not read: the number of bytes sent stops growing.
	tick := time.NewTicker(300 * time.Millisecond)
	defer tick.Stop()
	for last := int64(-1); ; {
		<-tick.C
		now := r.source.given.Load()
		if now > 0 && now == last {
			break
		}
		if now > 100_000 {
			t.Fatal("a hundred megabytes were read although the client reads nothing")
		}
		last = now
	}
	ws.CloseNow() // the reader leaves
	<-r.source.left
	if err := <-ended; err == nil {
		t.Log("ended without an error")
	}
}

func TestAFailureIsNotTheLogsEnd(t *testing.T) {
	t.Parallel()
	r := newReplica(t, &source{n: 2, err: fault.New(fault.Unavailable, "the disk is sick")})
	ended := r.serve(t, agentapi.PurposeLogs, false)
	<-r.hellos
	_, err := io.ReadAll(websocket.NetConn(t.Context(), <-r.conns, websocket.MessageBinary))
	if websocket.CloseStatus(err) != websocket.StatusInternalError || !strings.Contains(err.Error(), "the disk is sick") {
		t.Errorf("the reader got %v", err)
	}
	if err := <-ended; !fault.Is(err, fault.Unavailable) {
		t.Errorf("the agent got %v", err)
	}
}

func TestAnUnknownPurposeIsRefusedInTheHello(t *testing.T) {
	t.Parallel()
	r := newReplica(t, &source{})
	ended := r.serve(t, "shell", false)
	if h := <-r.hellos; h.Error == "" || len(h.Signature) == 0 {
		t.Errorf("hello %+v", h)
	}
	go func() { (<-r.conns).CloseNow() }()
	<-ended
}

func TestOnlyTheDomainFixedAtEnrolment(t *testing.T) {
	t.Parallel()
	d, err := New(Config{Domain: "muster.example"})
	if err != nil {
		t.Fatal(err)
	}
	for address, ok := range map[string]bool{
		"wss://muster.example/agent/v1/stream": true,
		"wss://r1.muster.example:8443/x":       true,
		"wss://R1.Muster.Example/":             true,
		"ws://muster.example/":                 false,
		"https://muster.example/":              false,
		"wss://evilmuster.example/":            false,
		"wss://muster.example.evil/":           false,
		"wss://muster.example@evil/":           false,
		"wss://127.0.0.1/":                     false,
		"":                                     false,
		"wss://":                               false,
	} {
		if got := d.Allowed(address) == nil; got != ok {
			t.Errorf("%q allowed: %v", address, got)
		}
	}
	if d, err = New(Config{}); err != nil || d.Allowed("wss:///x") == nil {
		t.Error("without a domain nothing is allowed")
	}
}
