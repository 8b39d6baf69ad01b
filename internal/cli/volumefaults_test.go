package cli

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// interrupted runs a command line until a store has failed so often, and interrupts it as Ctrl-C does.
func (p *testPlatform) interrupted(hits func() int, least int, args ...string) result {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	defer cancel()
	var out, errs bytes.Buffer
	done := make(chan int, 1)
	go func() { done <- tested.Run(ctx, args, []string{"HOME=" + p.home}, strings.NewReader(""), &out, &errs) }()
	for end := time.Now().Add(time.Minute); hits() < least; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			p.t.Fatalf("the store has failed %d times within a minute, of %d", hits(), least)
		}
	}
	select {
	case code := <-done:
		return result{code, out.String(), errs.String()}
	default:
	}
	cancel()
	return result{<-done, out.String(), errs.String()}
}

// A copy to a volume and back goes through REST while its store is busy, refuses, hangs or forgets: once, and it
// succeeds; for longer, and it waits. Interrupted then, the volume and the folder are as they were, and the same
// command goes on. Nothing that is shown has the store's address or a signature.
func TestCopiesWithABadStore(t *testing.T) {
	t.Parallel()
	gateway := s3test.Start(t)
	faults := s3test.Behind(t, gateway.Config)
	s, err := store.OpenS3(faults.Config)
	if err != nil {
		t.Fatal(err)
	}
	p := newPlatformOn(t, s)
	p.signUp("ada@example.com")
	p.ok("billing", "topup", "50")
	from := t.TempDir()
	files := map[string][]byte{"big.bin": make([]byte, 3<<20), "small.txt": []byte("small")}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(files["big.bin"])
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(from, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	same := func(what, to string) {
		t.Helper()
		for name, b := range files {
			if got, err := os.ReadFile(filepath.Join(to, name)); err != nil || !bytes.Equal(got, b) {
				t.Errorf("%s: %s has %d bytes of %d: %v", what, name, len(got), len(b), err)
			}
		}
	}
	secret := func(what string, r result) {
		t.Helper()
		if text := r.out + r.errs; strings.Contains(text, "X-Amz") || strings.Contains(text, faults.Config.Endpoint) {
			t.Errorf("%s shows a secret: %s", what, text)
		}
	}
	for _, c := range []struct {
		name     string
		do       func() s3test.Fault
		up, down bool
		failures int // after which it is interrupted
	}{
		{"busy", func() s3test.Fault { return s3test.Answers(503, "SlowDown") }, true, true, 2},
		{"refuses", func() s3test.Fault { return s3test.Answers(403, "AccessDenied") }, true, true, 2},
		{"full", func() s3test.Fault { return s3test.Answers(507, "InsufficientStorage") }, true, false, 2},
		{"hangs", faults.Hangs, true, true, 1},
		{"forgets", func() s3test.Fault { return s3test.Forgets }, true, false, 2},
		{"a bit", s3test.Flips, false, true, 2},
	} {
		vol := "copy-" + strings.ReplaceAll(c.name, " ", "-")
		p.ok("volume", "create", vol, "--size", "10")
		at := vol + ":/in"
		head := func() any { return p.json("volume", "show", vol)["head_seq"] }
		if c.up {
			hits := faults.When(s3test.Puts, c.do())
			r := p.interrupted(hits, c.failures, "volume", "cp", from, at)
			secret(c.name, r)
			if r.code == 0 || !strings.Contains(r.errs, "The same command goes on where it was") &&
				!strings.Contains(r.errs, "the same command goes on where it was") {
				t.Errorf("%s, interrupted: exit %d %s%s", c.name, r.code, r.out, r.errs)
			}
			if got := head(); got != nil && got != 0.0 {
				t.Errorf("%s: the volume is at %v", c.name, got)
			}
			faults.Heal()
		}
		if c.up && c.name != "hangs" { // for one that hangs once, the copy would wait half a minute
			hits := faults.Times(1, s3test.Puts, c.do())
			if out := p.ok("volume", "cp", from, at); !strings.HasPrefix(out, "Snapshot 1 has 2 files") || hits() != 1 {
				t.Errorf("%s, once, after %d: %s", c.name, hits(), out)
			}
			faults.Heal()
		} else if out := p.ok("volume", "cp", from, at); !strings.HasPrefix(out, "Snapshot 1 has 2 files") {
			t.Errorf("%s: %s", c.name, out)
		}
		to := filepath.Join(t.TempDir(), "to")
		if c.down {
			hits := faults.When(s3test.Gets, c.do())
			r := p.interrupted(hits, c.failures, "volume", "cp", at, to)
			secret(c.name, r)
			if r.code == 0 {
				t.Errorf("%s, a download: %s%s", c.name, r.out, r.errs)
			}
			for name := range files {
				if _, err := os.Stat(filepath.Join(to, name)); err == nil {
					t.Errorf("%s: %s has its name", c.name, name)
				}
			}
			faults.Heal()
		}
		p.ok("volume", "cp", at, to)
		same(c.name, to)
	}

	// What the store has lost is said at once, and nothing has its name.
	p.ok("volume", "cp", from, "copy-busy:/again", "--label", "again")
	faults.When(s3test.Gets, s3test.Answers(http.StatusNotFound, "NoSuchKey"))
	to := filepath.Join(t.TempDir(), "to")
	r := p.run("", "volume", "cp", "copy-busy:/again", to)
	secret("lost", r)
	if r.code == 0 || !strings.Contains(r.errs, "lost") {
		t.Errorf("lost: exit %d %s%s", r.code, r.out, r.errs)
	}
	faults.Heal()
	p.ok("volume", "cp", "copy-busy:/again", to)
	same("lost", to)
}
