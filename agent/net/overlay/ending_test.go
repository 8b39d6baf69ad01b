package overlay

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/internal/agentapi"
)

// A process whose lease folder is gone, or was replaced by another, ends by itself and removes its device: after an
// agent that was stopped while it started the process, or a lease that was cleared away, nothing else knows of the
// process.
func TestEndsWithItsFolder(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(dir string) error{
		"removed": os.RemoveAll,
		"replaced": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".old"), os.MkdirAll(folder(dir), 0o700))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRank(t, 0)
			gone := make(chan error, 1)
			go func() { gone <- r.h.Wait(t.Context()) }()
			await(t, "the process is waited for", patient, func() bool { pid, _ := holder(r.h.dir); return pid == r.h.PID() })
			if err := away(r.cfg.Dir); err != nil {
				t.Fatal(err)
			}
			if err := <-gone; err != nil {
				t.Fatal("the process lives:", err)
			}
			await(t, "the process is reaped", patient, func() bool {
				return errors.Is(syscall.Kill(r.h.PID(), 0),
					syscall.ESRCH)
			})
			err := netns.Inside(r.ns.file, func() error { _, err := netlink.LinkByName(Interface); return err })
			if !errors.As(err, &netlink.LinkNotFoundError{}) {
				t.Errorf("the guest still has its device: %v", err)
			}
		})
	}
}

// An Ensure that is given up leaves no process that might serve later.
func TestGivenUpEnsureLeavesNothing(t *testing.T) {
	t.Parallel()
	ns, dir := newNamespace(t), t.TempDir()
	if err := os.MkdirAll(folder(dir), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { // a process that takes its time
		_, err := Ensure(ctx, Config{
			Dir:     dir,
			Ref:     agentapi.LeaseRef{Lease: "lease_x", Epoch: 1},
			NetNS:   ns.path(),
			Address: address(0),
			CIDR:    cidr,
			Command: []string{"sh", "-c", `echo $$ > "$0/pid.new"; mv "$0/pid.new" "$0/pid"; exec sleep 1000`},
		})
		ended <- err
	}()
	var pid int
	await(t, "the process has begun", patient, func() bool {
		b, err := os.ReadFile(dir + "/pid")
		if err == nil {
			_, err = fmt.Sscan(string(b), &pid)
		}
		return err == nil
	})
	cancel()
	if err := <-ended; err == nil {
		t.Error("it stands")
	}
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("process %d lives: %v", pid, err)
	}
}
