package agent_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/musterhq/muster/agent/storage/fusemount/mounttest"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// bucketHost is a host that mounts buckets of a store.
type bucketHost struct {
	*host
	store *s3test.Gateway
}

func newBucketHost(t *testing.T) *bucketHost {
	t.Helper()
	h := newScratchHost(t, 0)
	if p := h.scratch.CheckVolumes(t.Context()); p != nil {
		t.Fatalf("%+v", p)
	}
	h.stop()
	h.mount = mounttest.Program(t)
	h.start()
	return &bucketHost{h, s3test.Start(t)}
}

// bucketed is a lease whose job reads and writes a bucket.
func (h *bucketHost) bucketed() agentapi.LeaseSpec {
	spec := h.spec("/job", "results", "/results")
	spec.Buckets = []agentapi.BucketMount{{
		Path: "/results", Bucket: "bkt_a", Name: "results", Mode: agentapi.MountRW, CacheBytes: 300 << 20,
		Endpoint: h.store.Config.Endpoint, Region: "us-east-1", Store: h.store.Config.Bucket, Prefix: "runs",
		Credentials: agentapi.BucketCredentials{Version: 1, AccessKeyID: h.store.Config.Access,
			Secret: h.store.Config.Secret},
	}}
	return spec
}

func (h *bucketHost) client() *minio.Client {
	h.t.Helper()
	c, err := minio.New(strings.TrimPrefix(h.store.Config.Endpoint, "http://"), &minio.Options{Region: "us-east-1",
		Creds:        credentials.NewStaticV4(h.store.Config.Access, h.store.Config.Secret, ""),
		BucketLookup: minio.BucketLookupPath})
	if err != nil {
		h.t.Fatal(err)
	}
	return c
}

func (h *bucketHost) put(key, text string) {
	h.t.Helper()
	_, err := h.client().PutObject(h.t.Context(), h.store.Config.Bucket, key, strings.NewReader(text), int64(len(text)),
		minio.PutObjectOptions{})
	if err != nil {
		h.t.Fatal(err)
	}
}

func (h *bucketHost) object(key string) string {
	o, err := h.client().GetObject(h.t.Context(), h.store.Config.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return err.Error()
	}
	b, err := io.ReadAll(o)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// mountPID returns the process that mounts the host's bucket.
func (h *bucketHost) mountPID() int {
	h.t.Helper()
	b, err := os.ReadFile(h.mountFile("process.json"))
	var pid int
	if err == nil {
		_, err = fmt.Sscanf(string(b), `{"pid":%d`, &pid)
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return pid
}

func (h *bucketHost) mountFile(name string) string {
	files, _ := filepath.Glob(filepath.Join("/run/muster-agent", container.Host8(h.id), "buckets", "*", name))
	if len(files) != 1 {
		return ""
	}
	return files[0]
}

func (h *bucketHost) work() container.Container {
	for _, c := range h.containers() {
		if c.Role == container.Work {
			return c
		}
	}
	return container.Container{}
}

func (h *bucketHost) logs() string {
	out, _ := exec.Command("docker", "logs", h.work().ID).CombinedOutput()
	return string(out)
}

func TestABucketIsMountedInAWorkload(t *testing.T) {
	t.Parallel()
	h := newBucketHost(t)
	h.put("runs/in", "one")
	spec := h.launch(h.bucketed())
	h.await(spec.LeaseRef, "running", running)
	poll(t, "it reads", func() bool { return strings.Contains(h.logs(), `read "one" <nil>`) })
	started := h.work()

	// The process is killed under the workload, which goes on; what it closed before is not lost.
	for i := range 3 {
		if err := syscall.Kill(h.mountPID(), syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		poll(t, "it reads again", func() bool { return strings.Count(h.logs(), `read "one" <nil>`) == i+2 })
	}
	// An agent that is replaced adopts the mount.
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
	h.inspectHasNo(h.store.Config.Secret)

	h.want()
	st := h.await(spec.LeaseRef, "gone", gone)
	if len(st.NotUploaded) > 0 {
		t.Errorf("not uploaded: %+v", st.NotUploaded)
	}
	if got := h.object("runs/out"); got != "the result" {
		t.Errorf("the store has %q", got)
	}
	if h.mountFile("*") != "" {
		t.Error("of the mount is left on the host")
	}
	if got := h.object("runs/in"); got != "one" {
		t.Errorf("the wipe has changed the bucket: %q", got)
	}
	h.diskHasNo(h.store.Config.Secret)
}

// inspectHasNo checks that what Docker shows of the host's containers does not contain a text.
func (h *bucketHost) inspectHasNo(secret string) {
	h.t.Helper()
	for _, c := range h.containers() {
		out, err := exec.Command("docker", "inspect", c.ID).CombinedOutput()
		if err != nil || bytes.Contains(out, []byte(secret)) {
			h.t.Errorf("docker inspect (%v) has the secret: %v", err, bytes.Contains(out, []byte(secret)))
		}
	}
}

// diskHasNo checks that nothing in the agent's state contains a text.
func (h *bucketHost) diskHasNo(secret string) {
	h.t.Helper()
	err := filepath.WalkDir(h.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if b, err := os.ReadFile(path); err == nil && bytes.Contains(b, []byte(secret)) {
			h.t.Errorf("the secret is in %s", path)
		}
		return nil
	})
	if err != nil {
		h.t.Error(err)
	}
}

// While the store is away, an ended node is not gone, and its GPUs are free. What it wrote last is in the store
// afterwards.
func TestTheEndWaitsForUploads(t *testing.T) {
	t.Parallel()
	h := newBucketHost(t)
	spec := h.bucketed()
	spec.Command = []string{"/job", "result", "/results"}
	h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	poll(t, "it lists", func() bool { return strings.Contains(h.logs(), "listed <nil>") })
	h.store.Kill()
	h.want()
	st := h.await(spec.LeaseRef, "waiting for its uploads", func(st agentapi.LeaseStatus) bool {
		return st.Gone || st.State == agentapi.NodeStopped && st.Progress.Uploads != nil
	})
	if u := st.Progress.Uploads; st.Gone || !st.GPUsFree || u == nil || u.Files != 1 {
		t.Fatalf("%s", replies(st))
	}
	h.store.Run()
	st = h.await(spec.LeaseRef, "gone", gone)
	if got := h.object("runs/out"); got != "the result" || len(st.NotUploaded) > 0 {
		t.Errorf("the store has %q; not uploaded: %+v", got, st.NotUploaded)
	}
}

// A program that waits for a store that is away ends all the same, soon after its grace.
func TestAWaitingReaderEnds(t *testing.T) {
	t.Parallel()
	h := newBucketHost(t)
	h.put("runs/in", "one")
	spec := h.bucketed()
	spec.GraceS = 1
	h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	poll(t, "it reads", func() bool { return strings.Contains(h.logs(), `read "one" <nil>`) })
	if err := h.store.Pause(); err != nil {
		t.Fatal(err)
	}
	h.want()
	begin := time.Now()
	h.await(spec.LeaseRef, "stopped", func(st agentapi.LeaseStatus) bool { return st.State == agentapi.NodeStopped })
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("it took %v", took)
	}
	if err := h.store.Resume(); err != nil {
		t.Fatal(err)
	}
	h.await(spec.LeaseRef, "gone", gone)
}

// A start that cannot mount a bucket ends with a message that names it, and it is not the host's fault.
func TestABucketThatIsRefusedEndsTheStart(t *testing.T) {
	t.Parallel()
	h := newBucketHost(t)
	spec := h.bucketed()
	spec.Buckets[0].Credentials.Secret = "wrong"
	h.want(spec)
	st := h.await(spec.LeaseRef, "failed", func(st agentapi.LeaseStatus) bool { return st.State == agentapi.NodeFailed })
	if st.Reason != agentapi.ReasonBucketUnusable || !strings.Contains(st.Detail, "the bucket results at /results") ||
		!strings.Contains(st.Detail, "secret") {
		t.Errorf("%s", replies(st))
	}
	h.want()
	h.await(spec.LeaseRef, "gone", gone)
}

// A host that is restarted has lost its caches: what was not uploaded is reported, although nothing knows how much.
func TestWhatARestartOfTheHostLosesIsReported(t *testing.T) {
	t.Parallel()
	h := newBucketHost(t)
	spec := h.bucketed()
	spec.Command = []string{"/job", "result", "/results"}
	h.launch(spec)
	h.await(spec.LeaseRef, "running", running)
	poll(t, "it lists", func() bool { return strings.Contains(h.logs(), "listed <nil>") })
	h.store.Kill()
	h.stop()
	if err := syscall.Kill(h.mountPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for _, c := range h.containers() {
		if out, err := exec.Command("docker", "kill", c.ID).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
	}
	h.boot = "0a1b2c3d-0000-4000-8000-000000000001"
	h.start()
	h.want()
	st := h.await(spec.LeaseRef, "gone", gone)
	if len(st.NotUploaded) != 1 || st.NotUploaded[0].Name != "results" ||
		st.NotUploaded[0].Detail != "the host was restarted" || st.NotUploaded[0].Uploads != (agentapi.Uploads{}) {
		t.Errorf("%s", replies(st))
	}
}
