package account

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
)

func TestHashRoundTrip(t *testing.T) {
	t.Parallel()
	h := New(nil, Config{}).hasher // as in production
	encoded, err := h.hash(t.Context(), "correct horse")
	if err != nil || !strings.HasPrefix(encoded, "$argon2id$v=19$m=19456,t=2,p=1$") {
		t.Fatalf("%q, %v", encoded, err)
	}
	for password, want := range map[string]bool{"correct horse": true, "correct hors": false, "": false} {
		if ok, weak, err := h.check(t.Context(), encoded, password); ok != want || weak || err != nil {
			t.Errorf("%q: %v, weak %v, %v", password, ok, weak, err)
		}
	}
	if ok, _, err := h.check(t.Context(), h.decoy, "correct horse"); ok || err != nil {
		t.Errorf("the decoy matches: %v, %v", ok, err)
	}
}

func TestOldCostIsSeen(t *testing.T) {
	t.Parallel()
	c := cost{memoryKiB: 64, passes: 1, lanes: 1}
	salt := []byte("0123456789abcdef")
	old := phc(c, salt, derive(c, "pw", salt, keyLen))
	if ok, weak, err := newHasher(1, hashMemoryKiB).check(t.Context(), old, "pw"); !ok || !weak || err != nil {
		t.Errorf("%v, weak %v, %v", ok, weak, err)
	}
}

func TestHashQueueIsBounded(t *testing.T) {
	t.Parallel()
	h := newHasher(1, hashMemoryKiB)
	leave, err := h.enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, maxWaiting)
	for range maxWaiting {
		go func() {
			_, err := h.enter(ctx)
			out <- err
		}()
	}
	for h.waiting.Load() < maxWaiting {
		select {
		case err := <-out:
			t.Fatal(err)
		default:
		}
	}
	if _, err := h.enter(t.Context()); !fault.Is(err, fault.Unavailable) {
		t.Errorf("one too many: %v", err)
	}
	cancel()
	for range maxWaiting {
		if err := <-out; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	leave()
	if leave, err = h.enter(t.Context()); err != nil {
		t.Fatalf("a free slot is refused: %v", err)
	}
	leave()
}

func FuzzParsePHC(f *testing.F) {
	f.Add(newHasher(1, hashMemoryKiB).decoy)
	f.Add("$argon2id$v=19$m=99999999,t=2,p=1$AAAAAAAAAAAAAAAA$AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		c, salt, key, err := parsePHC(s)
		if err == nil && (c.memoryKiB > 256<<10 || c.passes > 10 || len(salt) < 8 || len(key) < 16) {
			t.Errorf("%q reads as %+v", s, c)
		}
	})
}

func TestPrefix(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"192.0.2.1:80": "192.0.2.1", "192.0.2.1": "192.0.2.1", "::ffff:192.0.2.1": "192.0.2.1",
		"[2001:db8:1:2:3::4]:80": "2001:db8:1:2::/64", "fe80::1%eth0": "fe80::/64", "": "", "x:1": "unknown",
	} {
		if got := prefix(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
