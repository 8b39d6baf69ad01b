package slots

import (
	"context"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

func TestSlots_LimitEachOrgAndAll(t *testing.T) {
	t.Parallel()
	s := &Slots{PerOrg: 1, All: 2, Full: "full"}
	a, b, c := id.New[id.Org](), id.New[id.Org](), id.New[id.Org]()
	take := func(org id.Org) (func(), error) { return s.Take(t.Context(), org) }
	leave, err := take(a)
	if err != nil {
		t.Fatal(err)
	}
	_, err = take(a)
	if f := fault.From(err); !fault.Is(err, fault.RateLimited) || f.RetryAfter == 0 {
		t.Fatalf("a second request of an organisation: %v", err)
	}
	if _, err := take(b); err != nil {
		t.Fatal(err)
	}
	if _, err := take(c); !fault.Is(err, fault.RateLimited) {
		t.Fatalf("a third request of all: %v", err)
	}
	leave()
	if _, err := take(c); err != nil {
		t.Fatalf("after one has ended: %v", err)
	}
}

func TestSlots_ARequestWaitsForOne(t *testing.T) {
	t.Parallel()
	s := &Slots{PerOrg: 1, Wait: time.Hour}
	org := id.New[id.Org]()
	leave, err := s.Take(t.Context(), org)
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan error)
	go func() {
		_, err := s.Take(t.Context(), org)
		got <- err
	}()
	leave()
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Take(ctx, org); err == nil {
		t.Fatal("a request whose client has left got a slot")
	}
}
