package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A user who does not wait for the end of what runs still leaves nothing behind: each part is stopped, in order and
// with time to do it.
func TestAnImpatientCloseStopsEverything(t *testing.T) {
	t.Parallel()
	s := &Stack{cfg: Config{Dir: filepath.Join(t.TempDir(), "state")}}
	var did []string
	step := func(name string, err error) func(context.Context) error {
		return func(ctx context.Context) error {
			did = append(did, name)
			return errors.Join(ctx.Err(), err)
		}
	}
	broken := errors.New("broken")
	s.onClose(step("database", nil))
	s.onClose(step("server", broken))
	s.onClose(step("hosts", nil))
	s.release = func(ctx context.Context) error {
		did = append(did, "release")
		<-ctx.Done()
		return ctx.Err()
	}
	impatient, cancel := context.WithCancel(t.Context())
	cancel()
	err := s.Close(impatient)
	if want := []string{"release", "hosts", "server", "database"}; !slices.Equal(did, want) {
		t.Errorf("%v, want %v", did, want)
	}
	if !errors.Is(err, broken) || !errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
	if err := s.Close(t.Context()); err != nil || len(did) != 4 {
		t.Errorf("closed twice: %v %v", did, err)
	}
}

// A host whose folder was made and that was never enrolled does not keep the rest from being taken down.
func TestAHostThatNeverEnrolledHasNothingToPurge(t *testing.T) {
	t.Parallel()
	s := &Stack{cfg: Config{Dir: t.TempDir(), Bin: t.TempDir()}, state: &state{}}
	h := s.localHost(0)
	if err := s.purge(t.Context(), h); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(filepath.Join(h.dir, "state"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(h.dir, "state", "identity.json"), []byte(`{"host":"host_1"}`),
		0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.purge(t.Context(), h); err == nil {
		t.Error("a host that is enrolled was not purged")
	}
}
