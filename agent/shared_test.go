package agent_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/storage/sharedfs"
	"github.com/musterhq/muster/agent/storage/sharedfs/sharedfstest"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// sharingHost is a host with a shared file system of the name lab.
type sharingHost struct {
	*bucketHost
	path   string
	marker string
}

func newSharingHost(t *testing.T, path string) *sharingHost {
	t.Helper()
	h := newHost(t)
	h.stop()
	share := sharedfs.NewShare(sharedfs.Declared{Name: "lab", Path: path})
	got := share.Inspect(t.Context())
	if got.Problem != "" || got.Marker == "" || got.Type == "" {
		t.Fatalf("%+v", got)
	}
	h.shared = []*sharedfs.Share{share}
	h.start()
	return &sharingHost{&bucketHost{host: h}, path, got.Marker}
}

// sharing is a lease that has the folder of an organisation at /shared.
func (h *sharingHost) sharing(folder, mode string, command ...string) agentapi.LeaseSpec {
	spec := h.spec(append([]string{"/job"}, command...)...)
	spec.Shared = []agentapi.SharedMount{{Path: "/shared", Name: "lab", Marker: h.marker, Folder: folder, Mode: mode,
		QuotaBytes: 50 << 20}}
	return spec
}

func (h *sharingHost) onDisk(folder string) string {
	return filepath.Join(h.path, ".muster", "folders", folder)
}

func (h *sharingHost) mounts() string {
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		h.t.Fatal(err)
	}
	return string(b)
}

func (h *sharingHost) runs(spec agentapi.LeaseSpec) string {
	h.t.Helper()
	h.await(spec.LeaseRef, "running", running)
	poll(h.t, "its output", func() bool { return strings.Contains(h.logs(), "running\n") })
	return h.logs()
}

// ends ends a lease and waits until nothing of it is left.
func (h *sharingHost) ends(spec agentapi.LeaseSpec) {
	h.t.Helper()
	h.want()
	h.await(spec.LeaseRef, "gone", func(s agentapi.LeaseStatus) bool { return s.Gone })
	if strings.Contains(h.mounts(), spec.Lease) {
		h.t.Errorf("a mount of %s is left", spec.Lease)
	}
}

// The clusters of an organisation find each other's files, whichever host they are on; another organisation's does not,
// whatever its image does; ro refuses writes. Nothing stays mounted, and what was stored stays.
func TestASharedFolderIsItsOrganisations(t *testing.T) {
	t.Parallel()
	path := sharedfstest.Ext4(t)
	sharedByOrganisation(t, path, path)
}

// sharedByOrganisation runs clusters on two hosts that have a file system at these paths.
func sharedByOrganisation(t *testing.T, onOne, onOther string) {
	one, other := newSharingHost(t, onOne), newSharingHost(t, onOther)
	if one.marker != other.marker {
		t.Fatalf("two hosts of one file system report %s and %s", one.marker, other.marker)
	}
	a := one.launch(one.sharing("shd_a", agentapi.MountRW, "shared", "/shared", "first"))
	text := one.runs(a)
	for _, want := range []string{"found 0 <nil>", "write read-only false", "device refused true",
		"above is the container's true", "rename itself refused true", "replace itself refused true",
		"link from elsewhere refused true"} {
		if !strings.Contains(text, want) {
			t.Errorf("the first node has no %q:\n%s", want, text)
		}
	}
	if o := options(text); !slices.Contains(o, "nosuid") || !slices.Contains(o, "nodev") || !slices.Contains(o, "rw") {
		t.Errorf("the folder is mounted with %v", o)
	}
	b := other.launch(other.sharing("shd_a", agentapi.MountRO, "shared", "/shared", "second"))
	text = other.runs(b)
	for _, want := range []string{`read first "of first"`, "write read-only true"} {
		if !strings.Contains(text, want) {
			t.Errorf("the second node has no %q:\n%s", want, text)
		}
	}
	if o := options(text); !slices.Contains(o, "nosuid") || !slices.Contains(o, "nodev") || !slices.Contains(o, "ro") {
		t.Errorf("the folder is mounted with %v", o)
	}
	other.ends(b)
	c := other.launch(other.sharing("shd_c", agentapi.MountRW, "shared", "/shared", "third"))
	if text = other.runs(c); !strings.Contains(text, "found 0 <nil>") {
		t.Errorf("another organisation finds something:\n%s", text)
	}
	other.ends(c)
	one.ends(a)
	if b, err := os.ReadFile(filepath.Join(one.onDisk("shd_a"), "first")); string(b) != "of first" {
		t.Errorf("after the lease's end: %q, %v", b, err)
	}
}

// The agent's end does not touch a shared folder that a container has, and the next one does not mount it twice. What
// is mounted for a lease that the next agent does not know is taken away, and nothing that is in it.
func TestSharedFoldersOutliveTheAgent(t *testing.T) {
	t.Parallel()
	sharedOutlivesTheAgent(t, newSharingHost(t, sharedfstest.Ext4(t)))
}

func sharedOutlivesTheAgent(t *testing.T, h *sharingHost) {
	spec := h.launch(h.sharing("shd_a", agentapi.MountRW, "shared", "/shared", "first"))
	h.runs(spec)
	points := h.points()
	if len(points) != 1 {
		t.Fatalf("the host has %q", points)
	}
	h.stop()
	left := filepath.Join(filepath.Dir(points[0]), "lse_former-e3-shd_b")
	former := agentapi.SharedMount{Path: "/shared", Name: "lab", Marker: h.marker, Folder: "shd_b",
		Mode: agentapi.MountRW}
	if err := h.shared[0].Bind(t.Context(), former, left); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(h.onDisk("shd_b"), "kept")
	if err := os.WriteFile(kept, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.start()
	poll(t, "the former mount and its mount point are gone", func() bool {
		_, err := os.Stat(left)
		return !strings.Contains(h.mounts(), "lse_former") && os.IsNotExist(err)
	})
	if b, err := os.ReadFile(kept); string(b) != "kept" {
		t.Errorf("what was in it: %q, %v", b, err)
	}
	h.await(spec.LeaseRef, "running", running)
	if again := h.points(); !slices.Equal(again, points) {
		t.Errorf("the host has %q, and had %q", again, points)
	}
	h.ends(spec)
}

// points returns where the host has shared folders mounted for leases.
func (h *sharingHost) points() (out []string) {
	for line := range strings.Lines(h.mounts()) {
		if f := strings.Fields(line); strings.Contains(f[4], "/shared/") && strings.Contains(f[3], "/folders/") &&
			strings.Contains(f[4], container.Host8(h.id)) {
			out = append(out, f[4])
		}
	}
	return out
}

// options returns those of the mount that the job has printed.
func options(text string) []string {
	_, rest, _ := strings.Cut(text, "options ")
	line, _, _ := strings.Cut(rest, "\n")
	return strings.Split(line, ",")
}

// Over its quota a folder becomes read-only in the container as soon as it grows; a program that keeps a file open for
// writing is ended.
func TestASharedFolderHasAQuota(t *testing.T) {
	t.Parallel()
	sharedWithQuota(t, newSharingHost(t, sharedfstest.Ext4(t)))
}

func sharedWithQuota(t *testing.T, h *sharingHost) {
	spec := h.launch(h.sharing("shd_q", agentapi.MountRW, "fill", "/shared", "close"))
	h.await(spec.LeaseRef, "running", running)
	poll(t, "writes are refused", func() bool { return strings.Contains(h.logs(), "read-only file system") })
	// The look that closes it reports that, and so do the later ones.
	seen := uint64(0)
	for range 2 {
		h.awaitReport("the folder is closed", func(s agentapi.Sync) bool {
			if s.Seq < seen || !slices.ContainsFunc(s.Shared, func(u agentapi.SharedUse) bool {
				return u.Folder == "shd_q" && u.Closed && u.Bytes > 50<<20 && u.Bytes < 100<<20
			}) {
				return false
			}
			seen = s.Seq + 3
			return true
		})
	}
	h.ends(spec)
	spec = h.launch(h.sharing("shd_b", agentapi.MountRW, "fill", "/shared", "open"))
	st := h.await(spec.LeaseRef, "ended", func(s agentapi.LeaseStatus) bool { return s.State == agentapi.NodeStopped })
	if !strings.Contains(st.Detail, "over its quota") || !strings.Contains(st.Detail, "lab") {
		t.Errorf("the node's end says %q", st.Detail)
	}
	h.ends(spec)
}

// A folder is deleted at the platform's request, with all that a hostile image has left there, and nothing else is.
func TestASharedFolderIsErased(t *testing.T) {
	t.Parallel()
	sharedIsErased(t, newSharingHost(t, sharedfstest.Ext4(t)))
}

func sharedIsErased(t *testing.T, h *sharingHost) {
	spec := h.launch(h.sharing("shd_a", agentapi.MountRW, "shared", "/shared", "first"))
	h.runs(spec)
	beside := h.onDisk("shd_b")
	if err := os.MkdirAll(beside, 0o755); err != nil {
		t.Fatal(err)
	}
	h.ends(spec)
	h.set(func() {
		h.desired.Revision++
		h.desired.SharedErase = []agentapi.SharedErase{{Name: "lab", Marker: h.marker, Folder: "shd_a"},
			{Name: "lab", Marker: "ANOTHERANOTHERANOTHERANOTH", Folder: "shd_b"}}
	})
	h.awaitReport("it is erased", func(s agentapi.Sync) bool {
		return slices.Contains(s.Shared, agentapi.SharedUse{Folder: "shd_a", Erased: true})
	})
	h.awaitReport("the other is not", func(s agentapi.Sync) bool {
		return slices.ContainsFunc(s.Shared, func(u agentapi.SharedUse) bool {
			return u.Folder == "shd_b" && !u.Erased && strings.Contains(u.Problem, "another file system")
		})
	})
	if _, err := os.Lstat(h.onDisk("shd_a")); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if _, err := os.Lstat(beside); err != nil {
		t.Errorf("a folder of another organisation is gone: %v", err)
	}
}

// A node does not start on a host whose file system is not mounted: it would write to the host's own disk.
func TestASharedFileSystemMustBeMounted(t *testing.T) {
	t.Parallel()
	path := sharedfstest.Ext4(t)
	h := newSharingHost(t, path)
	if out, err := exec.Command("umount", path).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	spec := h.sharing("shd_a", agentapi.MountRW, "shared", "/shared", "first")
	h.want(spec)
	st := h.await(spec.LeaseRef, "waiting", func(s agentapi.LeaseStatus) bool {
		return strings.Contains(s.Progress.WaitingFor, "nothing is mounted there") ||
			strings.Contains(s.Detail, "nothing is mounted there")
	})
	if len(h.containers()) > 1 || st.Started {
		t.Errorf("the node has started: %+v", st)
	}
	if left, err := os.ReadDir(path); err != nil || len(left) > 0 {
		t.Errorf("the host's own disk has %v, %v", left, err)
	}
}
