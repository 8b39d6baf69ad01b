package agent

import (
	"context"
	"crypto/ed25519"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// keptInventories is a link that keeps what problems were sent, and when.
type keptInventories struct {
	Link
	codes []string
	at    []time.Duration
	start time.Time
}

func (l *keptInventories) Inventory(_ context.Context, inv agentapi.Inventory) error {
	code := ""
	for _, p := range inv.Problems {
		code += p.Code
	}
	l.codes, l.at = append(l.codes, code), append(l.at, time.Since(l.start))
	return nil
}

// A host whose problem goes away says so within a minute, and does not repeat itself while the problem stays.
func TestInventory_IsSentWhenProblemsChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &keptInventories{start: time.Now()}
		_, key, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := New(Config{
			StateDir: t.TempDir(), Host: id.New[id.Host](), Key: key, BootID: "b1", BootMS: func() int64 { return 1 },
			Now: time.Now, GPUs: GPUs{Diagnosis: changingGPUs{changed: make(chan struct{})}}, Link: l,
			Log: slog.New(slog.DiscardHandler),
			Inventory: func(context.Context) (inv agentapi.Inventory) {
				if time.Since(l.start) < 5*time.Minute+time.Second {
					inv.Problems = []agentapi.Problem{{Code: "p", Evidence: time.Now().String()}}
				}
				return inv
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		defer a.journal.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Hour)
		defer cancel()
		a.inventories.run(ctx)
		want := []time.Duration{0, 6 * time.Minute, time.Hour + 6*time.Minute}
		if len(l.at) != len(want) {
			t.Fatalf("sent %q at %v, want %v", l.codes, l.at, want)
		}
		for i := range want {
			if l.at[i] != want[i] || (l.codes[i] == "p") != (i == 0) {
				t.Errorf("sent %q at %v, want %v", l.codes, l.at, want)
			}
		}
	})
}
