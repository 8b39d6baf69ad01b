package bucket

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/testing/s3test"
)

// While a store does not take files, people see how many wait and why, and nothing is lost: all of them are there once
// the store is well. A file that cannot be read fails, and is never other than it was stored.
func TestABadStore(t *testing.T) {
	w := newWorld(t)
	f := s3test.Behind(t, w.store.Config)
	w.w.Mount.Endpoint = f.Config.Endpoint
	w.put("runs/a/in.txt", "from the store")
	w.mounted()
	_, err := os.ReadDir(w.point()) // without the list of a folder no file is created in it
	w.must(err)
	type bad struct {
		do   s3test.Fault
		want string
	}
	faults := []bad{
		{s3test.Answers(403, "QuotaExceeded"), "the store is full: it answers QuotaExceeded"},
		{s3test.Answers(403, "AccessDenied"), "the access key may not write to the bucket"},
	}
	if os.Getenv("MUSTER_TEST_KILLS") != "" { // of these rclone repeats each request for ten seconds
		faults = append(faults, bad{s3test.Answers(507, "InsufficientStorage"), "the store is full: it answers Insufficient"},
			bad{s3test.Answers(503, "SlowDown"), "the store answers SlowDown"})
	}
	for i, c := range faults {
		name := fmt.Sprintf("out-%d", i)
		f.When(s3test.Puts, c.do)
		w.must(os.WriteFile(filepath.Join(w.point(), name), []byte(name), 0o600))
		s := w.await(c.want, func(s State) bool { return strings.Contains(s.Uploading, c.want) })
		if s.Files != 1 || s.Bytes != int64(len(name)) || s.Failing == 0 {
			t.Errorf("%s: %+v", c.want, s)
		}
		f.Heal()
		w.await("uploaded", func(s State) bool { return s.Files == 0 && s.Uploading == "" })
		if got, err := w.object("runs/a/" + name); err != nil || got != name {
			t.Errorf("the store has %q, %v", got, err)
		}
	}
	f.When(s3test.Gets, s3test.Answers(403, "AccessDenied"))
	if b, err := os.ReadFile(filepath.Join(w.point(), "in.txt")); err == nil {
		t.Errorf("read %q of a store that refuses", b)
	}
	f.Heal()
	f.Times(1, s3test.Gets, s3test.Cuts)
	if b, err := os.ReadFile(filepath.Join(w.point(), "in.txt")); err != nil || string(b) != "from the store" {
		t.Errorf("read %q of a store that cuts off once: %v", b, err)
	}
}

// A store that is overloaded from the beginning is named, and the bucket is mounted once it answers.
func TestAStoreThatIsBusyIsAwaited(t *testing.T) {
	w := newWorld(t)
	f := s3test.Behind(t, w.store.Config)
	w.w.Mount.Endpoint = f.Config.Endpoint
	f.When(s3test.Any, s3test.Answers(503, "SlowDown"))
	w.m.Want(w.w)
	w.await("named", func(s State) bool { return !s.Ready && strings.Contains(s.Problem, "the store answers SlowDown") })
	f.Heal()
	w.await("ready", ready)
	if _, err := os.Stat(filepath.Join(w.point(), "none")); !errors.Is(err, unix.ENOENT) {
		t.Error(err)
	}
}
