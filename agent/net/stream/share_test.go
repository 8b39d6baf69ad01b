package stream

import (
	"context"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/coder/websocket"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// endless is a log that has no lines yet and does not end while it is followed.
type endless struct{ opened chan string }

func (e endless) Logs(ctx context.Context, ref agentapi.LeaseRef, _ int, _ bool,
	_ func(agentapi.LogFrame) error) error {
	e.opened <- ref.Lease
	<-ctx.Done()
	return ctx.Err()
}

func (e endless) KeptLog(ctx context.Context, ref agentapi.LeaseRef, emit func(agentapi.LogFrame) error) error {
	return e.Logs(ctx, ref, 0, false, emit)
}

// One tenant opens as many streams as it is given, with several leases; a neighbour on the host still reads its log,
// and so does the server when a lease has ended.
func TestOneTenantDoesNotTakeAllStreams(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	web := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		ws, err := websocket.Accept(w, req, nil)
		if err != nil {
			return
		}
		_, _, _ = ws.Read(req.Context())
		<-ctx.Done()
	}))
	t.Cleanup(web.Close)
	source := endless{make(chan string)}
	d, err := New(Config{Host: "host_1", Domain: "127.0.0.1", Source: source, Log: slog.New(slog.DiscardHandler),
		CA:   string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw})),
		Sign: func(b []byte) ([]byte, error) { return b, nil }})
	if err != nil {
		t.Fatal(err)
	}
	open := func(lease, purpose string) error {
		t.Helper()
		ended := make(chan error, 1)
		go func() {
			ended <- d.Serve(ctx, agentapi.Dial{
				LeaseRef: agentapi.LeaseRef{Lease: lease, Epoch: 1},
				Purpose:  purpose,
				Follow:   true,
				URL:      "wss" + strings.TrimPrefix(web.URL, "https") + agentapi.StreamPath,
				Ticket:   "t",
			})
		}()
		select {
		case <-source.opened:
			return nil
		case err := <-ended:
			return err
		}
	}
	leases := []string{"a", "b", "c", "d"}
	for _, lease := range leases {
		for n := range MaxPerLease {
			if err := open(lease, agentapi.PurposeLogs); err != nil {
				t.Fatalf("stream %d of %s: %v", n, lease, err)
			}
		}
		if err := open(lease, agentapi.PurposeLogs); !fault.Is(err, fault.RateLimited) {
			t.Errorf("%s has more than its share: %v", lease, err)
		}
	}
	if err := open("neighbour", agentapi.PurposeLogs); err != nil {
		t.Errorf("the neighbour's log: %v", err)
	}
	if err := open("a", agentapi.PurposeKeptLog); err != nil {
		t.Errorf("the kept log of a lease that is followed: %v", err)
	}
	cancel()
}
