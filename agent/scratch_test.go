package agent_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// newScratchHost is a host that offers scratch, gigabytes of it (0: what the disk has).
func newScratchHost(t *testing.T, gigabytes int64) *host {
	t.Helper()
	h := newHost(t)
	h.scratch = scratch.New(t.TempDir(), gigabytes, container.Host8(h.id))
	t.Cleanup(func() {
		if h.stop != nil {
			h.stop()
		}
		if err := h.scratch.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	h.stop()
	h.start()
	return h
}

// A node finds an empty scratch of its size, which lives through the agent's death and is gone with its epoch: neither
// the next epoch nor the next lease has anything of it.
func TestALeaseHasAScratchOfItsOwn(t *testing.T) {
	t.Parallel()
	h := newScratchHost(t, 0)
	mark := "left by " + h.id.String()
	spec := h.spec("/job", "scratch", mark)
	spec.ScratchGB = 1
	spec = h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	at := h.scratch.Path(spec.LeaseRef)
	poll(t, "the mark", func() bool {
		b, err := os.ReadFile(filepath.Join(scratch.Data(at), "mark"))
		return err == nil && strings.HasPrefix(string(b), mark)
	})
	h.stop()
	h.start()
	h.await(spec.LeaseRef, "running", running)
	if b, err := os.ReadFile(filepath.Join(scratch.Data(at), "mark")); err != nil || !strings.HasPrefix(string(b), mark) {
		t.Errorf("a restart of the agent took what the node had: %v", err)
	}

	next := spec
	next.Epoch, next.Go = 2, false
	h.want(next)
	h.await(spec.LeaseRef, "gone", gone)
	if there, err := scratch.Ready(at); err != nil || there {
		t.Errorf("the ended epoch's scratch is there: %v %v", there, err)
	}
	h.await(next.LeaseRef, "ready", ready)
	if entries, err := os.ReadDir(scratch.Data(h.scratch.Path(next.LeaseRef))); err != nil || len(entries) != 0 {
		t.Errorf("the next epoch finds %v, %v", entries, err)
	}
	for _, want := range []string{"empty true", "room of about a gigabyte true", "written true"} {
		if text := h.kept(spec.LeaseRef); !strings.Contains(text, want) {
			t.Errorf("want %q in %s", want, text)
		}
	}
	h.want()
	h.await(next.LeaseRef, "gone", gone)
	if room, err := h.scratch.Room(); err != nil || room.Taken != 0 {
		t.Errorf("room %+v, %v", room, err)
	}
}

// Scratch that cannot be made fails the node before anything of the renter's runs, and says why.
func TestAScratchThatCannotBeMadeFailsTheNode(t *testing.T) {
	t.Parallel()
	small, none := newScratchHost(t, 1), newHost(t)
	for h, reason := range map[*host]string{small: agentapi.ReasonScratchFailed, none: agentapi.ReasonNotOffered} {
		spec := h.spec()
		spec.ScratchGB = 2
		h.want(spec)
		st := h.await(spec.LeaseRef, "gone", gone)
		if st.State != agentapi.NodeFailed || st.Reason != reason || st.Started || st.Detail == "" {
			t.Errorf("want %s: %s", reason, replies(st))
		}
		if reason == agentapi.ReasonScratchFailed && !strings.Contains(st.Detail, "room for 1 GB") {
			t.Errorf("%s", replies(st))
		}
	}
}

// At its start the agent removes scratch of leases that it has no record of, and keeps that of its leases; purge
// removes all.
func TestLeftScratchIsSwept(t *testing.T) {
	t.Parallel()
	h := newScratchHost(t, 0)
	spec := h.spec()
	spec.ScratchGB = 1
	h.want(spec)
	h.await(spec.LeaseRef, "ready", ready)
	forgotten := h.spec().LeaseRef
	if err := h.scratch.Make(t.Context(), forgotten, 1); err != nil {
		t.Fatal(err)
	}
	h.stop()
	h.start()
	poll(t, "the sweep", func() bool {
		_, err := os.Lstat(h.scratch.Path(forgotten))
		return os.IsNotExist(err)
	})
	if there, err := scratch.Ready(h.scratch.Path(spec.LeaseRef)); err != nil || !there {
		t.Errorf("a lease's own was swept: %v %v", there, err)
	}
	h.stop()
	// The lease's record is enough: purge finds the folder by it.
	if err := agent.Purge(t.Context(), h.id, h.dir, h.engine, nil); err != nil {
		t.Fatal(err)
	}
	if room, err := h.scratch.Room(); err != nil || room.Taken != 0 {
		t.Errorf("purge left %+v, %v", room, err)
	}
}
