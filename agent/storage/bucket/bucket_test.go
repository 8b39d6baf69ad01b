package bucket

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/fusemount/mounttest"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// world is a host with a store.
type world struct {
	t     *testing.T
	store *s3test.Gateway
	m     *Mounts
	w     Wanted
	log   *bytes.Buffer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Fatal("mounts need root: run the tests as root")
	}
	w := &world{t: t, store: s3test.Start(t), log: &bytes.Buffer{}}
	w.m = New(w.config())
	w.w = Wanted{
		Ref: agentapi.LeaseRef{Lease: "lse_test", Epoch: 1}, Cache: t.TempDir(),
		Mount: agentapi.BucketMount{
			Path: "/results", Bucket: "bkt_test", Name: "results", Mode: agentapi.MountRW, CacheBytes: 1 << 30,
			Endpoint: w.store.Config.Endpoint, Region: "us-east-1", Store: w.store.Config.Bucket, Prefix: "runs/a",
			Credentials: agentapi.BucketCredentials{Version: 1, AccessKeyID: w.store.Config.Access,
				Secret: w.store.Config.Secret},
		},
	}
	t.Cleanup(func() { w.detach(w.m) })
	return w
}

func (w *world) config() Config {
	return Config{Dir: w.t.TempDir(), Program: mounttest.Program(w.t), AnyAddress: true,
		Log: slog.New(slog.NewTextHandler(w.log, nil))}
}

func (w *world) detach(m *Mounts) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := m.Detach(ctx, w.w.Ref); err != nil {
		w.t.Error(err)
	}
}

func (w *world) state() State   { return w.m.State(w.w.Ref, w.w.Mount.Bucket) }
func (w *world) source() string { return w.m.Source(w.w.Ref, w.w.Mount.Bucket) }
func (w *world) point() string  { return w.m.Point(w.w.Ref, w.w.Mount.Bucket) }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// pid returns the bucket's process.
func (w *world) pid() int {
	w.t.Helper()
	pid, ok := w.m.PID(w.w.Ref, w.w.Mount.Bucket)
	if !ok {
		w.t.Fatal("nothing runs")
	}
	return pid
}

// zombie reports whether a process has ended and is not waited for yet.
func zombie(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && strings.Contains(string(b), ") Z ")
}

// await waits for a state.
func (w *world) await(what string, ok func(State) bool) State {
	w.t.Helper()
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		s := w.state()
		if ok(s) {
			return s
		}
		if time.Now().After(end) {
			log, _ := os.ReadFile(w.m.Log(w.w.Ref, w.w.Mount.Bucket))
			w.t.Fatalf("never %s: %+v\n%s\n%s", what, s, w.log, log)
		}
	}
}

func ready(s State) bool { return s.Ready }

func (w *world) mounted() {
	w.t.Helper()
	w.m.Want(w.w)
	w.await("ready", ready)
}

func (w *world) client() *minio.Client {
	w.t.Helper()
	c, err := minio.New(strings.TrimPrefix(w.store.Config.Endpoint, "http://"), &minio.Options{Region: "us-east-1",
		Creds:        credentials.NewStaticV4(w.store.Config.Access, w.store.Config.Secret, ""),
		BucketLookup: minio.BucketLookupPath})
	w.must(err)
	return c
}

func (w *world) object(key string) (string, error) {
	o, err := w.client().GetObject(w.t.Context(), w.store.Config.Bucket, key, minio.GetObjectOptions{})
	if err != nil {
		return "", err
	}
	b, err := io.ReadAll(o)
	return string(b), err
}

func (w *world) put(key, text string) {
	w.t.Helper()
	_, err := w.client().PutObject(w.t.Context(), w.store.Config.Bucket, key, strings.NewReader(text), int64(len(text)),
		minio.PutObjectOptions{})
	w.must(err)
}

func TestABucketIsReadAndWritten(t *testing.T) {
	w := newWorld(t)
	w.put("runs/a/in.txt", "from the store")
	w.mounted()
	b, err := os.ReadFile(filepath.Join(w.point(), "in.txt"))
	w.must(err)
	if string(b) != "from the store" {
		t.Errorf("read %q", b)
	}
	w.must(os.WriteFile(filepath.Join(w.point(), "out.txt"), []byte("to the store"), 0o600))
	w.w.Ended = true
	w.m.Want(w.w)
	w.await("uploaded", func(s State) bool { return s.Uploaded })
	if got, err := w.object("runs/a/out.txt"); err != nil || got != "to the store" {
		t.Errorf("the store has %q, %v", got, err)
	}
}

func TestReadOnly(t *testing.T) {
	w := newWorld(t)
	w.w.Mount.Mode = agentapi.MountRO
	w.mounted()
	if err := os.WriteFile(filepath.Join(w.point(), "x"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Errorf("a write with mode ro: %v", err)
	}
}

// What cannot be mounted is named, in words that have no secrets.
func TestWhatIsWrongIsNamed(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*agentapi.BucketMount)
		want   string
	}{
		"unknown key":    {func(m *agentapi.BucketMount) { m.Credentials.AccessKeyID = "none" }, "does not know"},
		"wrong secret":   {func(m *agentapi.BucketMount) { m.Credentials.Secret = "wrong" }, "does not accept the secret"},
		"missing bucket": {func(m *agentapi.BucketMount) { m.Store = "nothing-here" }, "no such bucket"},
	} {
		t.Run(what, func(t *testing.T) {
			w := newWorld(t)
			c.change(&w.w.Mount)
			w.m.Want(w.w)
			s := w.await("refused", func(s State) bool { return s.Refused != "" })
			if !strings.Contains(s.Refused, c.want) || s.Ready {
				t.Errorf("%+v, want %q", s, c.want)
			}
		})
	}
}

func TestAStoreThatIsAwayIsAwaited(t *testing.T) {
	w := newWorld(t)
	w.store.Kill()
	w.m.Want(w.w)
	s := w.await("a problem", func(s State) bool { return strings.Contains(s.Problem, "store") })
	if s.Refused != "" || s.Ready {
		t.Errorf("%+v", s)
	}
	w.store.Run()
	w.await("ready", ready)
}

// A store at an address that is not on the internet gets no connection, whatever its name.
func TestOnlyTheInternetIsConnectedTo(t *testing.T) {
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	defer l.Close()
	var connected atomic.Bool
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			connected.Store(true)
			c.Close()
		}
	}()
	for _, endpoint := range []string{"https://" + l.Addr().String(), "http://" + l.Addr().String()} {
		cfg := w.config()
		cfg.AnyAddress = false
		w.m = New(cfg)
		w.w.Mount.Endpoint = endpoint
		w.m.Want(w.w)
		s := w.await("refused", func(s State) bool { return s.Refused != "" })
		if !strings.Contains(s.Refused, "not on the internet") && !strings.Contains(s.Refused, "https") {
			t.Errorf("%s: %+v", endpoint, s)
		}
		w.detach(w.m)
	}
	if connected.Load() {
		t.Error("a connection was made")
	}
}

// The next agent adopts what runs, without credentials; it starts what has died once it has them.
func TestTheNextAgentAdopts(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	before := w.pid()
	w.m.Close() // an agent that has ended starts no process again
	next := New(w.m.cfg)
	t.Cleanup(func() { w.detach(next) })
	bare := w.w
	bare.Mount.Credentials = agentapi.BucketCredentials{}
	w.m = next
	next.Want(bare)
	w.await("ready", ready)
	if after := w.pid(); after != before {
		t.Errorf("adopted %d, want %d", after, before)
	}
}

func TestNewCredentialsMountAgain(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	w.w.Mount.Credentials.Version++
	w.m.Want(w.w)
	w.await("ready with the new ones", func(s State) bool { return s.Starts == 2 && s.Ready })
}

func TestNoSecretIsVisible(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	pid := w.pid()
	for _, p := range []string{"cmdline", "environ"} {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", pid, p))
		w.must(err)
		if bytes.Contains(b, []byte(w.store.Config.Secret)) {
			t.Errorf("/proc/PID/%s has the secret", p)
		}
	}
	for _, dir := range []string{w.m.cfg.Dir, w.w.Cache} {
		w.must(filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
			if err != nil || p == w.point() {
				return filepath.SkipDir
			}
			if !d.Type().IsRegular() {
				return nil
			}
			b, err := os.ReadFile(p)
			if bytes.Contains(b, []byte(w.store.Config.Secret)) {
				t.Errorf("%s has the secret", p)
			}
			return err
		}))
	}
	if strings.Contains(w.log.String(), w.store.Config.Secret) {
		t.Error("the log has the secret")
	}
}

// container is a process with a separate mount namespace, in which the bucket is at path.
type container struct {
	pid  int
	root string // /proc/PID/root
}

// contain starts one. script runs in the namespace before the process sleeps.
func (w *world) contain(script string) container {
	w.t.Helper()
	cmd := exec.Command("unshare", "-m", "--propagation", "private", "sh", "-ec", script+"\necho made; exec sleep 1000")
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	w.must(err)
	cmd.Stderr = os.Stderr
	started, over := make(chan error), make(chan struct{})
	go func() { // the process is killed when its thread ends
		runtime.LockOSThread()
		started <- cmd.Start()
		<-over
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	w.must(<-started)
	w.t.Cleanup(func() { close(over) })
	line := make([]byte, 5)
	_, err = io.ReadFull(out, line)
	w.must(err)
	return container{cmd.Process.Pid, filepath.Join("/proc", strconv.Itoa(cmd.Process.Pid), "root")}
}

// kills returns how often the process is killed, and whether the run is the proof, on a machine with nothing else to do
// (make test-data).
func kills() (n int, proof bool) {
	if n, err := strconv.Atoi(os.Getenv("MUSTER_TEST_KILLS")); err == nil && n > 0 {
		return min(n, 100), true
	}
	return 20, false
}

// The proof of buckets: the process is killed again and again under a reader, and the path is back in at most two
// seconds each time. While other tests run, it only has to come back.
func TestTheMountIsReplacedInARunningContainer(t *testing.T) {
	w := newWorld(t)
	text := strings.Repeat("a line of a data set\n", 5000)
	w.put("runs/a/data.txt", text)
	w.mounted()
	at := filepath.Join(t.TempDir(), "mnt")
	w.must(os.Mkdir(at, 0o755))
	c := w.contain(fmt.Sprintf("mount --bind %s %s", w.point(), at))
	w.w.PID = c.pid
	w.m.Want(w.w)
	path := filepath.Join(c.root, at, "data.txt")
	read := func() error {
		b, err := os.ReadFile(path)
		if err == nil && string(b) != text {
			err = errors.New("another text")
		}
		return err
	}
	w.must(read())
	var over atomic.Bool
	var readers sync.WaitGroup
	defer readers.Wait()
	defer over.Store(true)
	readers.Go(func() {
		for !over.Load() {
			_ = read()
			time.Sleep(time.Millisecond)
		}
	})
	var took []time.Duration
	n, proof := kills()
	for i := range n {
		pid := w.pid()
		begin := time.Now()
		w.must(unix.Kill(pid, unix.SIGKILL))
		for read() == nil && time.Since(begin) < 100*time.Millisecond { // from the kernel's cache
		}
		for err := read(); err != nil; err = read() {
			if time.Since(begin) > 20*time.Second {
				t.Fatalf("kill %d: %v: %+v\n%s", i, err, w.state(), w.log)
			}
			time.Sleep(time.Millisecond)
		}
		took = append(took, time.Since(begin))
		w.await("ready again", func(s State) bool { return s.Ready && s.Starts == i+2 })
	}
	slices.Sort(took)
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	t.Logf("%d kills: back after %v on average, %v at worst", len(took), sum/time.Duration(len(took)), took[len(took)-1])
	if worst := took[len(took)-1]; proof && worst > 2*time.Second {
		t.Errorf("once the path was back after %v only", worst)
	}
}

// A file that was closed, and not uploaded when the process died, is uploaded by the next one.
func TestWhatWasClosedIsUploadedAfterAKill(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	for i := range 5 {
		w.must(os.WriteFile(filepath.Join(w.point(), fmt.Sprintf("out-%d", i)), []byte("result"), 0o600))
		w.must(unix.Kill(w.pid(), unix.SIGKILL))
		w.await("ready again", func(s State) bool { return s.Ready && s.Starts == i+2 })
	}
	w.w.Ended = true
	w.m.Want(w.w)
	w.await("uploaded", func(s State) bool { return s.Uploaded })
	for i := range 5 {
		if got, err := w.object(fmt.Sprintf("runs/a/out-%d", i)); err != nil || got != "result" {
			t.Errorf("out-%d: %q, %v", i, got, err)
		}
	}
}

// A kill loses no file that was closed, even while the file's metadata is written, which happens in place.
func TestAKillWhileMetadataIsWritten(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	_, err := os.ReadDir(w.point()) // without the list of a folder no file is created in it
	w.must(err)
	w.store.Kill()
	w.must(os.WriteFile(filepath.Join(w.point(), "out"), []byte("result"), 0o600))
	w.await("counted", func(s State) bool { return s.Files == 1 })
	w.m.Close()
	pid := w.pid()
	w.must(unix.Kill(pid, unix.SIGKILL))
	for end := time.Now().Add(5 * time.Second); unix.Kill(pid, 0) == nil && !zombie(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the process does not end")
		}
	}
	cut := 0
	w.must(filepath.WalkDir(filepath.Join(w.w.Cache, "vfsMeta"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Name() != "out" {
			return err
		}
		cut++
		return os.Truncate(path, 10)
	}))
	if cut != 1 {
		t.Fatalf("the metadata of %d files was cut off", cut)
	}
	w.store.Run()
	w.m = New(w.m.cfg)
	w.w.Ended = true
	w.m.Want(w.w)
	w.await("uploaded", func(s State) bool { return s.Uploaded })
	if got, err := w.object("runs/a/out"); err != nil || got != "result" {
		t.Errorf("the store has %q, %v", got, err)
	}
}

// While the store is away, what is not uploaded yet is counted, and the end is not reached.
func TestUploadsWaitForTheStore(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	_, err := os.ReadDir(w.point()) // without the list of a folder no file is created in it
	w.must(err)
	w.store.Kill()
	w.must(os.WriteFile(filepath.Join(w.point(), "out"), make([]byte, 100_000), 0o600))
	w.w.Ended = true
	w.m.Want(w.w)
	s := w.await("failing", func(s State) bool { return s.Failing > 0 })
	if s.Uploaded || s.Files != 1 || s.Bytes != 100_000 {
		t.Errorf("%+v", s)
	}
	w.store.Run()
	w.await("uploaded", func(s State) bool { return s.Uploaded })
}

// What is mounted at a path of the container, and is not the bucket's own mount, stays.
func TestNothingElseIsUnmounted(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	dir := t.TempDir()
	at := filepath.Join(dir, "a", "mnt")
	w.must(os.MkdirAll(at, 0o755))
	c := w.contain(fmt.Sprintf("mount -t tmpfs system /mnt\nmount --bind %s %s", w.point(), at))
	// As a workload could: the folder above is renamed, and a link leads from the old path to a mount of the system.
	w.must(os.Rename(filepath.Join(c.root, dir, "a"), filepath.Join(c.root, dir, "b")))
	w.must(os.Symlink("/", filepath.Join(c.root, dir, "a")))
	before := mountsBut(t, c.pid, w.source())
	w.w.PID = c.pid
	w.m.Want(w.w)
	w.must(unix.Kill(w.pid(), unix.SIGKILL))
	w.await("ready again", func(s State) bool { return s.Ready && s.Starts == 2 })
	// When a mount point is removed, as Docker does when a container ends, the kernel unmounts it in all namespaces.
	before = slices.DeleteFunc(before, func(point string) bool {
		_, err := os.Lstat(filepath.Join(c.root, point))
		return os.IsNotExist(err)
	})
	after := mountsBut(t, c.pid, w.source())
	for _, point := range before {
		if !slices.Contains(after, point) {
			t.Errorf("%s was unmounted", point)
		}
	}
	w.must(os.WriteFile(filepath.Join(c.root, dir, "b", "mnt", "x"), nil, 0o600))
}

// A mount that covers the bucket's is not taken for it.
func TestACoveredMountIsLeft(t *testing.T) {
	w := newWorld(t)
	w.mounted()
	at := filepath.Join(t.TempDir(), "mnt")
	w.must(os.Mkdir(at, 0o755))
	c := w.contain(fmt.Sprintf("mount --bind %s %s\nmount -t tmpfs covering %s", w.point(), at, at))
	w.w.PID = c.pid
	w.m.Want(w.w)
	w.must(unix.Kill(w.pid(), unix.SIGKILL))
	w.await("refused by the container", func(s State) bool { return strings.Contains(s.Problem, "put into the node") })
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", c.pid))
	w.must(err)
	if !strings.Contains(string(b), " covering ") {
		t.Error("the mount above was unmounted")
	}
}

func mountsBut(t *testing.T, pid int, source string) (out []string) {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) { // proc_pid_mountinfo(5)
		head, tail, _ := strings.Cut(line, " - ")
		if h, t := strings.Fields(head), strings.Fields(tail); t[1] != source {
			out = append(out, h[4])
		}
	}
	return out
}
