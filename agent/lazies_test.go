package agent_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/agent/storage/fusemount/mounttest"
	"github.com/musterhq/muster/agent/storage/lazy/lazytest"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// lazyHost is a host that mounts a snapshot from a store.
type lazyHost struct {
	*host
	gateway *s3test.Gateway
	p       *lazytest.Platform
}

func newLazyHost(t *testing.T, root *lazytest.Entry) *lazyHost {
	t.Helper()
	h := &lazyHost{host: newScratchHost(t, 0), gateway: s3test.Start(t)}
	if p := h.scratch.CheckVolumes(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	s3, err := store.OpenS3(h.gateway.Config)
	if err != nil {
		t.Fatal(err)
	}
	key := func(n int64) string { return fmt.Sprintf("d/test/%d", n) }
	sizes := map[int64]int64{}
	s, err := lazytest.Store(func(n int64, pack []byte) error {
		sizes[n] = int64(len(pack))
		return s3.Put(t.Context(), key(n), pack)
	}, root)
	if err != nil {
		t.Fatal(err)
	}
	h.p = &lazytest.Platform{Snapshot: &s, Life: time.Hour,
		Sign: func(ctx context.Context, n int64, until time.Time) (agentapi.PackURL, error) {
			r, err := s3.SignGet(ctx, key(n), until)
			return agentapi.PackURL{Method: r.Method, URL: r.URL, Header: r.Header, Bytes: sizes[n]}, err
		}}
	h.stop()
	h.mount = mounttest.Program(t)
	h.set(func() { h.control.volumes = h.p })
	h.start()
	return h
}

func (h *lazyHost) reading() agentapi.LeaseSpec {
	spec := h.spec("/job", "results", "/data")
	spec.Lazy = []agentapi.LazyMount{{Path: "/data", Volume: "vol_a", Name: "set", CacheBytes: 300 << 20,
		Key: lazytest.Key}}
	return spec
}

func (h *lazyHost) mountFile(name string) string {
	files, _ := filepath.Glob(filepath.Join("/run/muster-agent", container.Host8(h.id), "volumes", "*", name))
	if len(files) != 1 {
		return ""
	}
	return files[0]
}

func (h *lazyHost) mountPID() (pid int) {
	h.t.Helper()
	b, err := os.ReadFile(h.mountFile("process.json"))
	if err == nil {
		_, err = fmt.Sscanf(string(b), `{"pid":%d`, &pid)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

func (h *lazyHost) work() (work container.Container) {
	for _, c := range h.containers() {
		if c.Role == container.Work {
			work = c
		}
	}
	return work
}

func (h *lazyHost) logs() string {
	out, _ := exec.Command("docker", "logs", h.work().ID).CombinedOutput()
	return string(out)
}

// A workload reads a snapshot on demand. The process that mounts it is killed under it, and the agent is replaced: the
// workload goes on.
func TestALazyVolumeIsReadInAWorkload(t *testing.T) {
	t.Parallel()
	h := newLazyHost(t, lazytest.Dir("", lazytest.File("in", []byte("one"))))
	spec := h.launch(h.reading())
	h.await(spec.LeaseRef, "running", running)
	poll(t, "it reads", func() bool { return strings.Contains(h.logs(), `read "one" <nil>`) })
	started := h.work()
	for i := range 3 {
		if err := syscall.Kill(h.mountPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		poll(t, "it reads again", func() bool { return strings.Count(h.logs(), `read "one" <nil>`) == i+2 })
	}
	before := h.mountPID()
	h.stop()
	h.start()
	h.await(spec.LeaseRef, "running", running)
	if after := h.mountPID(); after != before {
		t.Errorf("the next agent started another process: %d, before %d", after, before)
	}
	if now := h.work(); now.ID != started.ID || now.PID != started.PID {
		t.Error("the workload was started again")
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
	if h.mountFile("*") != "" {
		t.Error("of the mount is left on the host")
	}
	h.p.Mu.Lock()
	defer h.p.Mu.Unlock()
	if !h.p.Closed {
		t.Error("the session was not closed")
	}
}

// A program that waits for a store that is away ends all the same, soon after its grace.
func TestALazyReaderThatWaitsEnds(t *testing.T) {
	t.Parallel()
	h := newLazyHost(t, lazytest.Dir("", lazytest.File("in", make([]byte, 8<<20))))
	if err := h.gateway.Pause(); err != nil {
		t.Fatal(err)
	}
	resumed := time.AfterFunc(time.Second, func() { _ = h.gateway.Resume() }) // the mount itself needs the store
	defer resumed.Stop()
	spec := h.reading()
	spec.GraceS = 1
	h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	if err := h.gateway.Pause(); err != nil {
		t.Fatal(err)
	}
	h.want()
	begin := time.Now()
	h.await(spec.LeaseRef, "stopped", func(st agentapi.LeaseStatus) bool {
		return st.State == agentapi.NodeStopped || st.Gone
	})
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := h.gateway.Resume(); err != nil {
		t.Fatal(err)
	}
	h.await(spec.LeaseRef, "gone", gone)
}

// A start whose volume is refused ends with a message that names it.
func TestALazyVolumeThatIsRefusedEndsTheStart(t *testing.T) {
	t.Parallel()
	h := newLazyHost(t, lazytest.Dir(""))
	h.p.Mu.Lock()
	h.p.Refuse = &agentapi.VolumeError{Code: agentapi.VolumeNotFound, Message: "the lease has no such volume"}
	h.p.Mu.Unlock()
	spec := h.reading()
	h.want(spec)
	st := h.await(spec.LeaseRef, "failed", func(st agentapi.LeaseStatus) bool { return st.State == agentapi.NodeFailed })
	if st.Reason != agentapi.ReasonRestoreFailed ||
		!strings.Contains(st.Detail, "volume set: the lease has no such volume") {
		t.Errorf("%s", replies(st))
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
}
