package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

func serve(t *testing.T, h http.HandlerFunc) *client.Client {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c, err := client.New(srv.URL+"/", "muster_pat_x", client.WithHTTP(srv.Client()))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestProblemsAreFaults(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer muster_pat_x" || r.URL.Path != "/api/v1/clusters" {
			t.Errorf("%s %v", r.URL, r.Header)
		}
		w.Header().Set("Content-Type", "application/problem+json")
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w,
			`{"title":"x","status":409,"code":"no_capacity","detail":"nothing fits","errors":[{"location":"nodes","message":"m"}],"explain":[{"constraint":"c","excluded_hosts":2}]}`)
	})
	_, err := c.Clusters.Rent(t.Context(), client.Spec{})
	f := fault.From(err)
	if f == nil || f.Kind != fault.NoCapacity || f.Message != "nothing fits" || len(f.Fields) != 1 ||
		f.Extra["explain"] == nil || f.Extra["title"] != nil {
		t.Errorf("%+v", err)
	}
}

func TestWhatIsNoMusterServer(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusTeapot)
		}
		fmt.Fprint(w, "<html>hello")
	})
	if _, err := c.Account.GetMe(t.Context()); !fault.Is(err, fault.Internal) {
		t.Errorf("%v", err)
	}
	if _, err := c.Clusters.Rent(t.Context(), client.Spec{}); !fault.Is(err, fault.Internal) ||
		!strings.Contains(err.Error(), "418") {
		t.Errorf("%v", err)
	}
	for _, address := range []string{"", "muster.example", "ftp://x", "http://"} {
		if _, err := client.New(address, ""); !fault.Is(err, fault.Invalid) {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestLostAnswersAreAskedForAgain: with the same key, so that the act happens once.
func TestLostAnswersAreAskedForAgain(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var keys []string
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		n := len(keys)
		mu.Unlock()
		switch n {
		case 1: // the connection dies before an answer
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			conn.Close()
		case 2: // in the middle of one
			w.Header().Set("Content-Length", "1000")
			fmt.Fprint(w, `{"id":`)
		case 3:
			w.WriteHeader(http.StatusServiceUnavailable)
		default:
			fmt.Fprint(w, `{"state":"succeeded"}`)
		}
	})
	top, err := c.Billing.CreateTopUp(t.Context(), client.CreateTopUpRequest{Amount: (5 * money.Unit).String()})
	if err != nil || top.State != "succeeded" {
		t.Fatalf("%+v %v", top, err)
	}
	if len(keys) != 4 || keys[0] == "" || keys[1] != keys[0] || keys[2] != keys[0] || keys[3] != keys[0] {
		t.Errorf("keys %q", keys)
	}
	if _, err := c.Billing.CreateTopUp(client.WithKey(t.Context(), "mine"),
		client.CreateTopUpRequest{Amount: money.Unit.String()}); err != nil || keys[len(keys)-1] != "mine" {
		t.Errorf("keys %q, %v", keys, err)
	}
}

func TestRefusalsAreNotRepeated(t *testing.T) {
	t.Parallel()
	calls := 0
	c := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		calls++
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
		fmt.Fprint(w, `{"code":"rate_limited","detail":"slow down"}`)
	})
	_, err := c.Account.GetMe(t.Context())
	if f := fault.From(err); f == nil || f.Kind != fault.RateLimited || f.RetryAfter != time.Hour || calls != 1 {
		t.Errorf("%v after %d calls", err, calls)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Account.GetMe(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestAllReadsEveryPage(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("after") == "" {
			fmt.Fprint(w, `{"items":[{"name":"a"}],"next":"more"}`)
			return
		}
		fmt.Fprint(w, `{"items":[{"name":"b"}],"next":null}`)
	})
	all, err := client.All(t.Context(), c.Tokens.List, client.PageOf{})
	if err != nil || len(all) != 2 || all[1].Name != "b" {
		t.Errorf("%+v %v", all, err)
	}
}

func TestWaitCluster(t *testing.T) {
	t.Parallel()
	for want, tc := range map[client.State]struct {
		states []client.State
		fails  bool
	}{
		client.Running:  {[]client.State{client.Provisioning, client.Provisioning, client.Running}, false},
		client.Released: {[]client.State{client.Releasing, client.Released}, false},
		client.Degraded: {[]client.State{client.Provisioning, client.Failed}, true},
	} {
		n := 0
		c := serve(t, func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("wait") != string(want) {
				t.Errorf("%s", r.URL)
			}
			raw, err := json.Marshal(map[string]any{"state": tc.states[n]})
			if err != nil {
				t.Error(err)
			}
			n++
			_, _ = w.Write(raw)
		})
		seen := 0
		v, err := c.Clusters.Wait(t.Context(), id.New[id.Cluster](), want, func(client.Cluster) { seen++ })
		if fault.Is(err, fault.Conflict) != tc.fails || v.State != tc.states[len(tc.states)-1] || seen != len(tc.states) {
			t.Errorf("%s: %s after %d, %v", want, v.State, seen, err)
		}
	}
}

func TestLogs(t *testing.T) {
	t.Parallel()
	c := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("node") == "9" {
			w.WriteHeader(http.StatusUnprocessableEntity)
			fmt.Fprint(w, `{"code":"validation_failed","detail":"no such rank"}`)
			return
		}
		fmt.Fprint(w, r.URL.RawQuery)
	})
	one, nine := 1, 9
	s, err := c.Clusters.Logs(t.Context(), id.New[id.Cluster](), client.LogsOf{
		Node:       &one,
		Follow:     true,
		Tail:       &nine,
		Timestamps: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if got, err := io.ReadAll(s); err != nil || string(got) != "follow=true&node=1&tail=9&timestamps=true" {
		t.Errorf("%s %v", got, err)
	}
	if _, err := c.Clusters.Logs(t.Context(), id.New[id.Cluster](), client.LogsOf{Node: &nine}); !fault.Is(err,
		fault.Invalid) {
		t.Errorf("%v", err)
	}
}
