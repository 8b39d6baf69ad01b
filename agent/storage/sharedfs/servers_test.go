//go:build shared

package sharedfs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/sharedtest"
)

// servers is a shared file system with real servers.
type servers interface {
	// Mount mounts it as another host.
	Mount(t *testing.T, as string) string
	Hang(t *testing.T)
	Resume(t *testing.T)
	Restart(t *testing.T)
}

func TestCephFS(t *testing.T) {
	s := sharedtest.Ceph(t)
	t.Run("a key that may make snapshots", func(t *testing.T) { tooPowerful(t, s) })
	t.Run("snapshots", func(t *testing.T) { snapshots(t, s) })
	// What a dead client has locked is free when the server gives it up, by default after five minutes.
	s.Admin(t, "ceph config set mds mds_cap_revoke_eviction_timeout 3")
	t.Run("a client that has died", func(t *testing.T) { deadClient(t, s) })
	s.Admin(t, "ceph config set mds mds_cap_revoke_eviction_timeout 0")
	conform(t, s)
}

func TestGlusterFS(t *testing.T) {
	s := sharedtest.Gluster(t)
	t.Run("a client that has died", func(t *testing.T) { deadClient(t, s) })
	conform(t, s)
}

func TestNFS(t *testing.T) {
	if !sharedtest.InLinux(t) {
		return
	}
	s := sharedtest.NFS{}
	conform(t, s)
	t.Run("a folder that the server has deleted", func(t *testing.T) { stale(t, s) })
}

const org = "shd_a"

// conform runs what holds for every shared file system.
func conform(t *testing.T, s servers) {
	one, other := share(s.Mount(t, "lab")), share(s.Mount(t, "lab"))
	marker := race(t, one, other)
	for _, part := range []struct {
		name string
		run  func(t *testing.T, one, other *Share, marker string)
	}{
		{"written here and read there", visible}, {"neither devices nor setuid programs", restricted},
		{"measured", measured}, {"renamed while it is measured", renamed}, {"closed", closed}, {"erased", erased},
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, one, other, marker) })
	}
	t.Run("servers that hang", func(t *testing.T) { hang(t, s, one, marker) })
	t.Run("servers that start again", func(t *testing.T) { restart(t, s, one, marker) })
}

func share(path string) *Share { return NewShare(Declared{Name: "lab", Path: path}) }

// race makes the marker on two hosts at the same time.
func race(t *testing.T, hosts ...*Share) string {
	t.Helper()
	var wg sync.WaitGroup
	got := make([]agentapi.SharedFS, 8)
	for i := range got {
		wg.Go(func() { got[i] = share(hosts[i%len(hosts)].Path).Inspect(t.Context()) })
	}
	wg.Wait()
	for _, g := range got {
		if g.Problem != "" || g.Marker == "" || g.Marker != got[0].Marker {
			t.Fatalf("%+v", got)
		}
	}
	var st unix.Statfs_t
	if err := unix.Statfs(hosts[0].Path, &st); err != nil {
		t.Fatal(err)
	}
	if size := int64(st.Blocks) * st.Frsize / 1e9; got[0].SizeGB != size {
		t.Errorf("it has %d GB, not %d", size, got[0].SizeGB)
	}
	t.Logf("declared: %+v", got[0])
	return got[0].Marker
}

// bound binds an organisation's folder as for a container.
func bound(t *testing.T, s *Share, marker, folder, mode string) string {
	t.Helper()
	point := filepath.Join(t.TempDir(), "point")
	t.Cleanup(func() {
		if err := Unbind(point); err != nil {
			t.Error(err)
		}
	})
	m := agentapi.SharedMount{Path: "/shared", Name: s.Name, Marker: marker, Folder: folder, Mode: mode}
	if err := s.Bind(t.Context(), m, point); err != nil {
		t.Fatal(err)
	}
	if err := s.Bind(t.Context(), m, point); err != nil {
		t.Fatalf("again: %v", err)
	}
	return point
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until a condition holds, for three minutes: NFS believes its cache of a folder for one.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(3 * time.Minute); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within three minutes: %s", what)
		}
	}
}

func visible(t *testing.T, one, other *Share, marker string) {
	a, b := bound(t, one, marker, org, agentapi.MountRW), bound(t, other, marker, org, agentapi.MountRO)
	must(t, os.WriteFile(a+"/file", []byte("first"), 0o644))
	eventually(t, "the other host reads the file", func() bool {
		got, _ := os.ReadFile(b + "/file")
		return string(got) == "first"
	})
	if err := os.WriteFile(b+"/file", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write to a folder that is ro: %v", err)
	}
	f, err := os.OpenFile(a+"/file", os.O_WRONLY, 0)
	must(t, err)
	defer f.Close()
	_, err = f.WriteString("later")
	must(t, err, f.Sync())
	eventually(t, "the other host reads what is written over it", func() bool {
		got, _ := os.ReadFile(b + "/file")
		return string(got) == "later"
	})
}

func restricted(t *testing.T, one, _ *Share, marker string) {
	dir := bound(t, one, marker, org, agentapi.MountRW)
	line := mountLine(t, dir)
	options := strings.Split(strings.Fields(line)[5], ",")
	for _, o := range []string{"nodev", "nosuid", "rw"} {
		if !slices.Contains(options, o) {
			t.Errorf("no %s: %s", o, line)
		}
	}
	must(t, unix.Mknod(dir+"/null", unix.S_IFCHR|0o666, int(unix.Mkdev(1, 3))))
	if _, err := os.ReadFile(dir + "/null"); !errors.Is(err, unix.EACCES) {
		t.Errorf("a device can be opened: %v", err)
	}
	b, err := os.ReadFile("/usr/bin/id")
	must(t, err, os.WriteFile(dir+"/id", b, 0o755), os.Chmod(dir+"/id", 0o755|os.ModeSetuid))
	out, err := exec.Command("setpriv", "--reuid=65534", "--clear-groups", dir+"/id", "-u").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "65534" {
		t.Errorf("a setuid program prints %q, %v", out, err)
	}
}

func mountLine(t *testing.T, point string) string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); f[4] == point {
			return line
		}
	}
	t.Fatalf("nothing is mounted at %s", point)
	return ""
}

func measured(t *testing.T, one, other *Share, marker string) {
	const folder = "shd_measured"
	dir := bound(t, one, marker, folder, agentapi.MountRW)
	must(t, os.MkdirAll(dir+"/a/b", 0o755), os.WriteFile(dir+"/a/b/file", bytes.Repeat([]byte("x"), 8<<20), 0o644))
	for _, s := range []*Share{one, other} {
		eventually(t, "8 MiB are measured", func() bool {
			n, err := s.Used(t.Context(), marker, folder)
			must(t, err)
			return n >= 8<<20 && n < 9<<20
		})
	}
	must(t, os.WriteFile(dir+"/sparse", nil, 0o644), os.Truncate(dir+"/sparse", 64<<20))
	n, err := one.Used(t.Context(), marker, folder)
	must(t, err)
	t.Logf("with a sparse file of 64 MiB: %d bytes", n)
	must(t, os.Remove(dir+"/sparse"), os.Remove(dir+"/a/b/file"))
	eventually(t, "what is deleted does not count", func() bool {
		n, err := other.Used(t.Context(), marker, folder)
		must(t, err)
		return n < 1<<20
	})
}

// renamed moves folders about and replaces them by links while they are measured.
func renamed(t *testing.T, one, other *Share, marker string) {
	const folder = "shd_renamed"
	dir := bound(t, one, marker, folder, agentapi.MountRW)
	for i := range 20 {
		must(t, os.MkdirAll(fmt.Sprintf("%s/%d/below", dir, i), 0o755),
			os.WriteFile(fmt.Sprintf("%s/%d/below/file", dir, i), make([]byte, 1<<16), 0o644))
	}
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := 0; ctx.Err() == nil; i = (i + 1) % 20 {
			name := fmt.Sprintf("%s/%d", dir, i)
			_ = os.Rename(name, dir+"/away")
			_ = os.Symlink("/", name)
			_ = os.Remove(name)
			_ = os.Rename(dir+"/away", name)
		}
	})
	for range 20 {
		for _, s := range []*Share{one, other} {
			if n, err := s.Used(t.Context(), marker, folder); err != nil || n > 20<<17 {
				t.Errorf("%d bytes, %v", n, err)
			}
		}
	}
	stop()
	wg.Wait()
}

// container starts a process in a new mount namespace, in which the folder is mounted at target.
func container(t *testing.T, point string) (pid int, target string) {
	t.Helper()
	target = t.TempDir()
	cmd := exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-c",
		`mount --bind "$0" "$1" && mount -o remount,bind,relatime "$1"; echo; exec sleep infinity`, point, target)
	out, err := cmd.StdoutPipe()
	must(t, err, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	_, err = out.Read(make([]byte, 1))
	must(t, err)
	return cmd.Process.Pid, target
}

func closed(t *testing.T, one, _ *Share, marker string) {
	const folder = "shd_closed"
	pid, target := container(t, bound(t, one, marker, folder, agentapi.MountRW))
	in := fmt.Sprintf("/proc/%d/root%s", pid, target)
	f, err := os.Create(in + "/open")
	must(t, err)
	if written, err := one.Close(t.Context(), pid, folder); !written || err == nil {
		t.Errorf("while a file is open for writing: %v", err)
	}
	must(t, f.Close())
	// FUSE and NFS may close the file behind the program's back.
	eventually(t, "it can be closed", func() bool { _, err := one.Close(t.Context(), pid, folder); return err == nil })
	if err := os.WriteFile(in+"/open", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write after it is closed: %v", err)
	}
}

func erased(t *testing.T, one, other *Share, marker string) {
	const folder, neighbour = "shd_erased", "shd_neighbour"
	dir, beside := bound(t, one, marker, folder, agentapi.MountRW), bound(t, one, marker, neighbour, agentapi.MountRW)
	must(t, os.WriteFile(beside+"/stays", []byte("here"), 0o644))
	leave(t, dir)
	must(t, other.Erase(t.Context(), marker, folder))
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Lstat(filepath.Join(one.Path, topDir, orgsDir, folder))
		return os.IsNotExist(err)
	})
	if b, err := os.ReadFile(beside + "/stays"); string(b) != "here" {
		t.Errorf("another organisation's file: %q, %v", b, err)
	}
	// A container that still runs on another host has nothing left, and gets nothing else.
	eventually(t, "what is erased is gone for its container", func() bool {
		_, err := os.ReadDir(dir)
		left, _ := os.ReadDir(dir)
		return err != nil || len(left) == 0
	})
	if n, err := one.Used(t.Context(), marker, folder); n != 0 || err != nil {
		t.Errorf("of an erased folder: %d, %v", n, err)
	}
}

// leave leaves in a folder what a hostile image would.
func leave(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"a\nname \\040", strings.Repeat("n", 255), "-rf", "...", " ", "\x01\x7f", "deleted-"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	must(t, os.Symlink("/", dir+"/root"), os.Symlink("../shd_neighbour", dir+"/beside"), os.Symlink("loop", dir+"/loop"),
		unix.Mkfifo(dir+"/fifo", 0), unix.Mknod(dir+"/disk", unix.S_IFBLK|0o666, int(unix.Mkdev(7, 8))),
		os.WriteFile(dir+"/file", []byte("x"), 0))
	for i := range 30 {
		must(t, os.Link(dir+"/file", fmt.Sprintf("%s/link%d", dir, i)))
	}
	deep, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	must(t, err)
	for range maxDepth + 20 { // as paths this long cannot be named, a hostile program works from folder to folder
		must(t, unix.Mkdirat(deep, "d", 0o700))
		next, err := unix.Openat(deep, "d", unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		must(t, err, unix.Close(deep))
		deep = next
	}
	must(t, unix.Mkdirat(deep, "bottom", 0), unix.Fchownat(deep, "bottom", 1000, 1000, 0), unix.Close(deep),
		os.Chown(dir, 1000, 1000), os.Chmod(dir, os.ModeSticky))
}

// hang checks that servers that do not answer cost a call its patience, and nothing else.
func hang(t *testing.T, s servers, one *Share, marker string) {
	dir := bound(t, one, marker, org, agentapi.MountRW)
	// The kernel answers from its caches until it is asked for something new.
	s.Hang(t)
	got := one.Inspect(t.Context())
	_, used := one.Used(short(t), marker, org)
	began := time.Now()
	unbound := Unbind(dir)
	took := time.Since(began)
	s.Resume(t)
	if !strings.Contains(got.Problem, errAway.Error()) {
		t.Errorf("while the servers hang: %+v", got)
	}
	if !errors.Is(used, errAway) {
		t.Errorf("measured while the servers hang: %v", used)
	}
	if unbound != nil || took > patience {
		t.Errorf("Unbind while the servers hang: %v after %s", unbound, took)
	}
	eventually(t, "it answers again", func() bool { return one.Inspect(t.Context()).Marker == marker })
	eventually(t, "it is measured again", func() bool { _, err := one.Used(t.Context(), marker, org); return err == nil })
}

func short(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// restart checks that mounts in containers outlive the servers, and can still be closed.
func restart(t *testing.T, s servers, one *Share, marker string) {
	const folder = "shd_restart"
	pid, target := container(t, bound(t, one, marker, folder, agentapi.MountRW))
	in := fmt.Sprintf("/proc/%d/root%s", pid, target)
	must(t, os.WriteFile(in+"/before", []byte("here"), 0o644))
	s.Restart(t)
	eventually(t, "the agent reaches it", func() bool { return one.Inspect(t.Context()).Marker == marker })
	eventually(t, "the container reads", func() bool { b, _ := os.ReadFile(in + "/before"); return string(b) == "here" })
	eventually(t, "the container writes", func() bool { return os.WriteFile(in+"/after", nil, 0o644) == nil })
	eventually(t, "it is measured", func() bool { _, err := one.Used(t.Context(), marker, folder); return err == nil })
	if _, err := one.Close(t.Context(), pid, folder); err != nil {
		t.Errorf("close: %v", err)
	}
	if err := os.WriteFile(in+"/after", nil, 0o644); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write after it is closed: %v", err)
	}
}

// deadClient checks that a run gets its folder after its file system's client has died and was started again.
func deadClient(t *testing.T, s *sharedtest.Server) {
	path, kill := s.MountAt(t, t.TempDir(), "lab")
	one := share(path)
	marker := one.Inspect(t.Context()).Marker
	dir := bound(t, one, marker, org, agentapi.MountRW)
	kill()
	if got := one.Inspect(t.Context()); got.Problem == "" {
		t.Errorf("with a dead client: %+v", got)
	}
	must(t, unix.Unmount(path, unix.MNT_DETACH))
	s.MountAt(t, path, "lab")
	m := agentapi.SharedMount{Path: "/shared", Name: "lab", Marker: marker, Folder: org, Mode: agentapi.MountRW}
	must(t, one.Bind(t.Context(), m, dir), os.WriteFile(dir+"/alive", nil, 0o644), Unbind(dir))
}

// stale checks that a folder which has gone on the server has nothing in it for the agent.
func stale(t *testing.T, s sharedtest.NFS) {
	one := share(s.Mount(t, ""))
	marker := one.Inspect(t.Context()).Marker
	const folder = "shd_stale"
	dir := bound(t, one, marker, folder, agentapi.MountRW)
	must(t, os.WriteFile(dir+"/file", nil, 0o644), os.RemoveAll(filepath.Join(sharedtest.Served, topDir, orgsDir, folder)))
	eventually(t, "the folder is stale", func() bool {
		return errors.Is(os.WriteFile(dir+"/new", nil, 0o644), unix.ESTALE)
	})
	eventually(t, "it has nothing", func() bool {
		n, err := one.Used(t.Context(), marker, folder)
		return n == 0 && err == nil
	})
	must(t, one.Erase(t.Context(), marker, folder))
}

// tooPowerful checks that a key with which programs in containers could make snapshots and change quotas is refused.
func tooPowerful(t *testing.T, s *sharedtest.Server) {
	got := share(s.Mount(t, "admin")).Inspect(t.Context())
	if !strings.Contains(got.Problem, "snapshots") || got.Marker != "" {
		t.Errorf("%+v", got)
	}
}

// snapshots checks what a program finds in .snap, and that the snapshots of a program do not keep a folder.
func snapshots(t *testing.T, s *sharedtest.Server) {
	admin, one := s.Mount(t, "admin"), share(s.Mount(t, "lab"))
	marker := one.Inspect(t.Context()).Marker
	const folder, neighbour = "shd_snapped", "shd_secret"
	dir, beside := bound(t, one, marker, folder, agentapi.MountRW), bound(t, one, marker, neighbour, agentapi.MountRW)
	must(t, os.WriteFile(dir+"/own", nil, 0o644), os.WriteFile(beside+"/secret", nil, 0o644))
	must(t, os.Mkdir(admin+"/.snap/operators", 0o755))
	var seen []string
	must(t, filepath.WalkDir(dir+"/.snap", func(path string, _ os.DirEntry, err error) error {
		seen = append(seen, path)
		return err
	}))
	if text := strings.Join(seen, "\n"); !strings.Contains(text, "own") || strings.Contains(text, "secret") {
		t.Errorf("the snapshots of a folder have %s", text)
	}
	if err := os.Mkdir(dir+"/.snap/mine", 0o755); !errors.Is(err, unix.EACCES) && !errors.Is(err, unix.EPERM) {
		t.Errorf("a snapshot is made: %v", err)
	}
	if err := unix.Setxattr(dir, "ceph.quota.max_bytes", []byte("0"), 0); err == nil {
		t.Error("a quota is changed")
	}
	// Made before the operator took the right away from the key.
	in := filepath.Join(admin, topDir, orgsDir, folder)
	must(t, os.MkdirAll(in+"/a/b", 0o755), os.Mkdir(in+"/.snap/old", 0o755), os.Mkdir(in+"/a/b/.snap/old", 0o755))
	if err := one.Erase(t.Context(), marker, folder); err == nil || !strings.Contains(err.Error(), "snapshot") {
		t.Errorf("a folder with snapshots that the agent may not delete: %v", err)
	}
	must(t, share(admin).Erase(t.Context(), marker, folder))
}
