package cli

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
)

// The command reaches the agent that runs on the state directory, and passes on what it says.
func TestRequalifyCommand(t *testing.T) {
	t.Parallel()
	state := t.TempDir()
	requalify := func(args ...string) (string, error) {
		cmd := root()
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs(append([]string{"gpu", "requalify", "--state", state}, args...))
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	if _, err := requalify("GPU-a"); err == nil || !strings.Contains(err.Error(), "does not run") {
		t.Errorf("without an agent: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	up := make(chan struct{})
	var asked []string
	go func() {
		close(up)
		done <- serveControl(ctx, filepath.Join(state, controlSocket), func(_ context.Context, uuid string) error {
			asked = append(asked, uuid)
			if uuid != "GPU-a" {
				return errors.New("it has a lease")
			}
			return nil
		}, slog.New(slog.DiscardHandler))
	}()
	<-up
	var text string
	err := errors.New("not asked")
	for i := 0; i < 1000 && (err != nil); i++ { // until it listens
		text, err = requalify("GPU-a")
	}
	if err != nil || !strings.Contains(text, "GPU-a") {
		t.Fatalf("%q, %v", text, err)
	}
	if _, err := requalify("GPU-b"); err == nil || !strings.Contains(err.Error(), "it has a lease") {
		t.Errorf("%v", err)
	}
	cancel()
	if err := <-done; err != nil || len(asked) != 2 {
		t.Errorf("%v, %v", err, asked)
	}
}
