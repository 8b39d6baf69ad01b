package notify

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/publicnet"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// owner is an actor of an organisation.
type owner struct {
	org  id.Org
	user id.User
}

func (o owner) Event(action, object string, detail map[string]any) audit.Event {
	return audit.Event{Org: o.org, User: o.user, Action: action, Object: object, Detail: detail}
}

// receiver is an address that keeps what it is sent.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	answer int
	line   string // answered as it is, if set
	secret string
	got    []client.WebhookEvent
	bad    []string
	tries  int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tries++
	body, _ := io.ReadAll(req.Body)
	if err := client.VerifyWebhook(r.secret, req.Header.Get(client.SignatureHeader), body, time.Now()); err != nil {
		r.bad = append(r.bad, err.Error())
	}
	var e client.WebhookEvent
	if err := json.Unmarshal(body, &e); err != nil {
		r.bad = append(r.bad, err.Error())
	}
	if r.line != "" {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			r.bad = append(r.bad, err.Error())
			return
		}
		defer conn.Close()
		fmt.Fprintf(conn, "%s\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", r.line)
		return
	}
	if r.answer != http.StatusOK {
		w.Header().Set("Location", "http://127.0.0.1/elsewhere")
		w.WriteHeader(r.answer)
		return
	}
	r.got = append(r.got, e)
}

func (r *receiver) set(answer int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = answer
}

// hooked is an organisation with a webhook, and a sender.
type hooked struct {
	t      *testing.T
	d      *db.DB
	by     owner
	hooks  *Webhooks
	hook   Webhook
	to     *receiver
	sender *Sender
}

func newHooked(t *testing.T) *hooked {
	t.Helper()
	d := dbtest.New(t)
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	h := &hooked{t: t, d: d, hooks: NewWebhooks(d, box, true), to: &receiver{answer: http.StatusOK}}
	h.by.org = person(t, d, "ada@example.com")
	if err := d.Pool.QueryRow(t.Context(), "SELECT user_id FROM membership WHERE org_id = $1", h.by.org).
		Scan(&h.by.user); err != nil {
		t.Fatal(err)
	}
	h.to.Server = httptest.NewServer(h.to)
	t.Cleanup(h.to.Close)
	if h.hook, _, err = h.hooks.Create(t.Context(), h.by, h.to.URL, idem.Request{}); err != nil {
		t.Fatal(err)
	}
	h.to.secret = h.hook.Secret
	h.sender = &Sender{DB: d, Box: box, AnyAddress: true, Log: slog.New(slog.DiscardHandler)}
	return h
}

// add adds a notice to an organisation.
func (h *hooked) add(org id.Org, title string) {
	h.t.Helper()
	if err := h.d.InTx(h.t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := Add(ctx, tx, Notice{Org: org, Key: title, Severity: Warn, Title: title, Body: "Act."})
		return err
	}); err != nil {
		h.t.Fatal(err)
	}
}

// pass makes everything due and runs the sender once.
func (h *hooked) pass() int {
	h.t.Helper()
	h.exec("UPDATE webhook_delivery SET next_at = clock_timestamp()")
	n, err := h.sender.Run(context.Background())
	if err != nil {
		h.t.Fatal(err)
	}
	return n
}

func (h *hooked) exec(sql string) {
	h.t.Helper()
	if _, err := h.d.Pool.Exec(h.t.Context(), sql); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hooked) deliveries() []Delivery {
	h.t.Helper()
	all, err := h.hooks.Deliveries(h.t.Context(), h.by.org, h.hook.ID, id.Notice{}, 50)
	if err != nil {
		h.t.Fatal(err)
	}
	return all
}

// Each notice of the organisation arrives once, signed and in order, and notices of others do not.
func TestWebhook_Delivers(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	other := person(t, h.d, "eve@example.com")
	h.add(h.by.org, "first")
	h.add(other, "foreign")
	h.add(h.by.org, "second")
	h.add(h.by.org, "second") // the same cause
	if n := h.pass(); n != 2 {
		t.Fatalf("%d arrived", n)
	}
	if n := h.pass(); n != 0 {
		t.Errorf("%d arrived again", n)
	}
	var titles []string
	for _, e := range h.to.got {
		titles = append(titles, e.Data.Title)
		if e.Type != client.NoticeCreated || e.ID != e.Data.ID || e.Data.OrgID != h.by.org {
			t.Errorf("%+v", e)
		}
	}
	if fmt.Sprint(titles) != "[first second]" || len(h.to.bad) > 0 {
		t.Errorf("%v, faults: %v", titles, h.to.bad)
	}
	for _, d := range h.deliveries() {
		if d.State != DeliveryDelivered || d.Attempts != 1 || d.Status != 200 || d.DeliveredAt == nil {
			t.Errorf("%+v", d)
		}
	}
}

// An address that fails costs one attempt a pass, gets everything once it works, and a redirect is a failure.
func TestWebhook_Retries(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.add(h.by.org, "first")
	h.add(h.by.org, "second")
	for i, answer := range []int{500, 302} {
		h.to.set(answer)
		if n := h.pass(); n != 0 || h.to.tries != i+1 {
			t.Fatalf("%d arrived in %d attempts", n, h.to.tries)
		}
	}
	last := h.deliveries()[1]
	if last.State != DeliveryPending || last.Attempts != 2 || last.Status != 302 || last.NextAt == nil {
		t.Errorf("%+v", last)
	}
	h.to.set(200)
	if n := h.pass(); n != 2 || h.to.got[0].Data.Title != "first" {
		t.Errorf("%d arrived: %+v", n, h.to.got)
	}
}

// After three days the webhook is disabled and its organisation notified. Enabled again, it receives new notices, and
// old ones that are retried.
func TestWebhook_IsDisabled(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.add(h.by.org, "first")
	h.to.set(503)
	h.exec("UPDATE webhook_delivery SET created_at = clock_timestamp() - interval '73 hours'")
	h.pass()
	w, err := h.hooks.Get(t.Context(), h.by.org, h.hook.ID)
	if err != nil || w.DisabledAt == nil || !strings.Contains(w.DisabledWhy, "503") {
		t.Fatalf("%+v %v", w, err)
	}
	notices, err := NewNotices(h.d).List(t.Context(), h.by.org, Filter{Limit: 10})
	if err != nil || len(notices) != 2 || notices[0].Title != "A webhook is disabled" {
		t.Fatalf("%+v %v", notices, err)
	}
	first := h.deliveries()
	if len(first) != 1 || first[0].State != DeliveryFailed {
		t.Fatalf("%+v", first)
	}
	h.to.set(200)
	tries := h.to.tries
	h.add(h.by.org, "while it is disabled")
	if h.pass(); h.to.tries != tries {
		t.Error("a disabled webhook was called")
	}
	if _, _, err := h.hooks.Retry(t.Context(), h.by, h.hook.ID, first[0].Notice, idem.Request{}); err == nil {
		t.Error("a retry to a disabled webhook")
	}
	if _, _, err := h.hooks.Enable(t.Context(), h.by, h.hook.ID, idem.Request{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := h.hooks.Retry(t.Context(), h.by, h.hook.ID, first[0].Notice, idem.Request{}); err != nil {
		t.Fatal(err)
	}
	h.add(h.by.org, "third")
	if n := h.pass(); n != 2 {
		t.Errorf("%d arrived: %+v", n, h.to.got)
	}
}

// A withdrawn forecast is not delivered any more.
func TestWebhook_WithdrawnNotice(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	if err := h.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if _, err := Add(ctx, tx, Notice{Org: h.by.org, Key: "k", Severity: Warn, Title: "soon", Object: "cl_1",
			Forecast: true}); err != nil {
			return err
		}
		return Withdraw(ctx, tx, h.by.org, "cl_1")
	}); err != nil {
		t.Fatal(err)
	}
	if n := h.pass(); n != 0 || h.to.tries != 0 {
		t.Errorf("%d arrived, %d tries", n, h.to.tries)
	}
}

// Nothing is sent into a private network, even by a name that resolves there.
func TestWebhook_StaysOnTheInternet(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.sender.AnyAddress = false
	h.exec("UPDATE webhook SET url = replace(url, '127.0.0.1', 'localhost')")
	h.add(h.by.org, "first")
	if n := h.pass(); n != 0 || h.to.tries != 0 {
		t.Fatalf("%d arrived, %d tries", n, h.to.tries)
	}
	if d := h.deliveries()[0]; d.Error != publicnet.ErrOutside.Error() {
		t.Errorf("%+v", d)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	for before, want := range map[int]time.Duration{0: 30 * time.Second, 1: time.Minute, 6: 32 * time.Minute,
		10: 6 * time.Hour, 2_000_000_000: 6 * time.Hour} {
		if got := retryAfter(before); got < want || got > want+want/10 {
			t.Errorf("after %d: %s, want %s", before, got, want)
		}
	}
}

// While the platform's secret changes, the secrets of webhooks are sealed again, each once.
func TestWebhook_SecretsAreSealedAgain(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	fresh, old := bytes.Repeat([]byte{9}, 32), bytes.Repeat([]byte{7}, 32)
	both, err := seal.NewRotatingBox(fresh, old)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 0} {
		if n, err := NewWebhooks(h.d, both, true).Reseal(t.Context()); err != nil || n != want {
			t.Errorf("%d were sealed again, want %d: %v", n, want, err)
		}
	}
}

// A receiver chooses the bytes of its status line. Whatever they are, the attempt is recorded, and given up in time.
func TestDelivery_IsRecordedWhateverItsReceiverAnswers(t *testing.T) {
	t.Parallel()
	h := newHooked(t)
	h.add(h.by.org, "first")
	for i, line := range []string{"HTTP/1.1 500 \xff\xfe", "HTTP/1.1 500 " + strings.Repeat("0", 95) + "é",
		"HTTP/1.1 500 \x1b[31mred\x00"} {
		h.to.mu.Lock()
		h.to.line = line
		h.to.mu.Unlock()
		h.pass()
		if d := h.deliveries(); d[0].Attempts != i+1 || d[0].Error != "the answer was 500 Internal Server Error" {
			t.Errorf("%q: %+v", line, d[0])
		}
	}
	h.exec("UPDATE webhook_delivery SET created_at = clock_timestamp() - interval '4 days'")
	h.pass()
	if w, err := h.hooks.List(t.Context(), h.by.org); err != nil || len(w) != 1 || w[0].DisabledAt == nil {
		t.Errorf("it is not given up: %+v, %v", w, err)
	}
}
