package container

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/moby/moby/client"
	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/agent/leasefiles"
	"github.com/musterhq/muster/agent/workload/cores"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// setUp is an engine of a host of its own on this machine's daemon, and a lease folder.
func setUp(t *testing.T) (*Engine, agentapi.LeaseSpec, leasefiles.Layout) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "guest")
	cmd := exec.Command("go", "build", "-o", binary, "../../../cmd/muster-guest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, out)
	}
	e, err := New(Config{
		Host:        id.New[id.Host](),
		GuestBinary: binary,
		Simulated:   true,
		Overlay:     netip.MustParsePrefix("10.77.0.0/20"),
		Log:         slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	spec := agentapi.LeaseSpec{
		LeaseRef: agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 3},
		Nodes:    1,
		CPUs:     1,
		RAMMB:    64,
		Env:      map[string]string{"SECRET": "s3cret"},
		Network:  agentapi.Network{Address: "10.77.0.1"},
	}
	files := leasefiles.At(t.TempDir())
	if err := files.Write(spec, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		err := errors.Join(e.Remove(ctx, spec.LeaseRef, Work), e.Remove(ctx, spec.LeaseRef, Guest), e.RemoveNetwork(ctx),
			e.Close())
		if err != nil {
			t.Error(err)
		}
	})
	return e, spec, files
}

func TestGuestAndWorkloadAsAgreed(t *testing.T) {
	t.Parallel()
	e, spec, files := setUp(t)
	ctx := t.Context()
	g, err := e.EnsureGuest(ctx, spec, files)
	if err != nil {
		t.Fatal(err)
	}
	if g.State != Running || g.PID == 0 || !g.IP.IsValid() {
		t.Fatalf("guest %+v", g)
	}
	again, err := e.EnsureGuest(ctx, spec, files)
	if err != nil || again.ID != g.ID {
		t.Fatalf("not adopted: %+v %v", again, err)
	}
	spec.Command = []string{"/nothing"}
	// Processors and memory that this machine does not have are refused by Docker: any will do then.
	w, err := e.EnsureWorkload(ctx, WorkloadSpec{
		Lease:   spec,
		Guest:   g.ID,
		ImageID: baseImage,
		Files:   files,
		Cores:   cores.Set{CPUs: "0,1023", Mems: "63"},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := e.docker.ContainerInspect(ctx, w.ID, client.ContainerInspectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	hc, c := raw.Container.HostConfig, raw.Container.Config
	got := map[string]any{
		"caps":              capSet(hc.CapAdd),
		"drop":              hc.CapDrop,
		"net":               string(hc.NetworkMode),
		"ipc":               string(hc.IpcMode),
		"restart":           string(hc.RestartPolicy.Name),
		"privileged":        hc.Privileged,
		"memory=swap":       hc.Memory == hc.MemorySwap && hc.Memory == 64*mb,
		"cpus":              hc.NanoCPUs,
		"pids":              *hc.PidsLimit,
		"log":               hc.LogConfig.Type,
		"shm":               hc.ShmSize,
		"cpuset":            hc.CpusetCpus + hc.CpusetMems,
		"no new privileges": hc.SecurityOpt[0],
		"ulimits":           fmt.Sprint(hc.Ulimits), // whatever Docker's defaults are
	}
	want := map[string]any{
		"caps":              capSet(workCaps),
		"drop":              []string{"ALL"},
		"net":               "container:" + g.ID,
		"ipc":               "private",
		"restart":           "no",
		"privileged":        false,
		"memory=swap":       true,
		"cpus":              int64(1e9),
		"pids":              int64(basePids + pidsPerCPU),
		"log":               "json-file",
		"shm":               int64(minShm),
		"cpuset":            "",
		"no new privileges": "no-new-privileges",
		"ulimits":           fmt.Sprint(ulimits()),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for _, m := range raw.Container.Mounts {
		if m.RW {
			t.Errorf("writable in the workload: %+v", m)
		}
	}
	labels, err := json.Marshal(c.Labels)
	if err != nil || bytes.Contains(labels, []byte("s3cret")) ||
		strings.Contains(strings.Join(append(c.Cmd, c.Entrypoint...), " "), "s3cret") {
		t.Errorf("the environment is in labels or arguments: %s %v", labels, err)
	}
	// Its command does not exist: the container ends before the barrier, and is not started again.
	ended := func() (Container, bool) {
		c, err := e.EnsureWorkload(ctx, WorkloadSpec{Lease: spec, Guest: g.ID, ImageID: baseImage, Files: files})
		if err != nil {
			t.Fatal(err)
		}
		return c, c.State == Exited
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for {
		if c, over := ended(); over {
			if c.ID != w.ID || c.ExitCode == 0 {
				t.Errorf("%+v", c)
			}
			break
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatal("the workload does not end")
		}
	}
	list, err := e.List(ctx)
	if err != nil || len(list) != 2 || list[0].Ref != spec.LeaseRef {
		t.Errorf("%+v %v", list, err)
	}
}

// capSet is a set of capabilities in one order and spelling.
func capSet(caps []string) string {
	set := map[string]bool{}
	for _, c := range caps {
		set[strings.TrimPrefix(c, "CAP_")] = true
	}
	b, err := json.Marshal(set) // sorted by key
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func TestWhatIsNotThereIsNoError(t *testing.T) {
	t.Parallel()
	e, spec, _ := setUp(t)
	ctx := t.Context()
	c, err := e.Inspect(ctx, spec.LeaseRef, Work)
	if err != nil || c.State != Absent {
		t.Errorf("%+v %v", c, err)
	}
	if err := errors.Join(e.Stop(ctx, spec.LeaseRef, Work, time.Second), e.Remove(ctx, spec.LeaseRef, Work),
		e.RemoveNetwork(ctx), e.RemoveImage(ctx, "muster-none/x:1")); err != nil {
		t.Error(err)
	}
}

// Agents of one machine remove the last tags of an image at the same time.
func TestTagsOfOneImageAreRemovedSideBySide(t *testing.T) {
	t.Parallel()
	e, spec, files := setUp(t)
	tar, repository := filepath.Join(t.TempDir(), "image.tar"), "muster-removed/"+spec.Lease
	docker := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("docker", args...).CombinedOutput(); err != nil {
			t.Fatalf("docker %v: %v\n%s", args, err, out)
		}
	}
	if out, err := exec.Command("tar", "-C", files.Node, "-cf", tar, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for range 3 {
		docker("import", tar, repository+":0")
		tags := []string{repository + ":0"}
		for i := 1; i < 6; i++ {
			tags = append(tags, fmt.Sprint(repository, ":", i))
			docker("tag", tags[0], tags[i])
		}
		var g errgroup.Group
		for _, tag := range tags {
			g.Go(func() error { return e.RemoveImage(t.Context(), tag) })
		}
		if err := g.Wait(); err != nil {
			t.Fatal(err)
		}
		if left, err := e.ListImages(t.Context(), repository); err != nil || len(left) > 0 {
			t.Fatalf("%v are left: %v", left, err)
		}
	}
}

func TestOneNetworkForTwoThatWantIt(t *testing.T) {
	t.Parallel()
	e, _, _ := setUp(t)
	ids := make(chan string, 4)
	for range cap(ids) {
		go func() {
			id, err := e.EnsureNetwork(t.Context())
			if err != nil {
				t.Error(err)
			}
			ids <- id
		}()
	}
	first := <-ids
	for range cap(ids) - 1 {
		if id := <-ids; id != first {
			t.Errorf("networks %s and %s", first, id)
		}
	}
}

func TestFactsOfThisDaemon(t *testing.T) {
	t.Parallel()
	e, _, _ := setUp(t)
	f := e.Facts(t.Context())
	if f.Version == "" || f.StorageDriver == "" || f.RootDir == "" || versionLess(f.API, "1.41") {
		t.Errorf("%+v", f)
	}
	started, ok := e.daemonStarted()
	if !ok || started.After(time.Now()) {
		t.Errorf("the daemon was started at %v %v", started, ok)
	}
	absent, err := New(Config{Docker: "unix:///nowhere.sock"})
	if err != nil {
		t.Fatal(err)
	}
	if f := absent.Facts(t.Context()); len(f.Problems) != 1 || f.Problems[0].Code != "docker_unreachable" {
		t.Errorf("%+v", f)
	}
}

func TestOldToolkitIsRefused(t *testing.T) {
	t.Parallel()
	for version, bad := range map[string]bool{
		"1.17.7": true,
		"1.17.8": false,
		"1.9.0":  true,
		"1.18.0": false,
		"2.0.0":  false,
		"":       false,
	} {
		found := false
		for _, p := range (Facts{Toolkit: version}).judge() {
			found = found || (p.Code == "toolkit_too_old" && p.Severity == "bad")
		}
		if found != bad {
			t.Errorf("%q refused: %v", version, found)
		}
	}
}

func TestAttachModes(t *testing.T) {
	t.Parallel()
	gpus := []string{"GPU-a", "GPU-b"}
	for _, c := range []struct {
		mode    Attach
		gpus    []string
		visible string
		docker  string
		driver  string
		ids     []string
	}{
		{AttachCDI, gpus, "void", "29.8.1", "cdi", []string{"nvidia.com/gpu=GPU-a", "nvidia.com/gpu=GPU-b"}},
		{AttachNVIDIA, gpus, "GPU-a,GPU-b", "28.5.2+dfsg4", "nvidia", gpus},
		{AttachNVIDIA, gpus, "GPU-a,GPU-b", "29.0.4", "nvidia", gpus},
		{AttachNVIDIA, gpus, "GPU-a,GPU-b", "29.5.1+dfsg1", "nvidia.runtime-hook", gpus},
		{AttachNVIDIA, gpus, "GPU-a,GPU-b", "30.0.0-rc.1", "nvidia.runtime-hook", gpus},
		{AttachNone, gpus, "void", "29.8.1", "", nil},
		{AttachNVIDIA, nil, "void", "29.8.1", "", nil},
	} {
		reqs := Facts{Version: c.docker}.deviceRequests(c.mode, c.gpus)
		driver, ids := "", []string(nil)
		if len(reqs) == 1 {
			driver, ids = reqs[0].Driver, reqs[0].DeviceIDs
		}
		if Visible(c.mode, c.gpus) != c.visible || driver != c.driver || !cmp.Equal(ids, c.ids) {
			t.Errorf("%s %v: %q %+v", c.mode, c.gpus, Visible(c.mode, c.gpus), reqs)
		}
	}
}

func frame(stream byte, text string) []byte {
	b := []byte{stream, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(text)))
	return append(b, text...)
}

func TestReadLog(t *testing.T) {
	t.Parallel()
	const at = "2026-01-02T03:04:05.678901234Z "
	in := bytes.Join([][]byte{frame(1, at+"one\r\n"), frame(1, at+"pa"), frame(2, at+"err\n"), frame(1, at+"rt\n"),
		frame(1, at+"\xff\n"), frame(1, at+"end")}, nil)
	var got []agentapi.LogFrame
	if err := readLog(bytes.NewReader(in), func(f agentapi.LogFrame) error {
		got = append(got, f)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	ms := time.Date(2026, 1, 2, 3, 4, 5, 678e6, time.UTC).UnixMilli()
	want := []agentapi.LogFrame{{
		TimeMS: ms,
		Line:   "one",
	}, {
		TimeMS: ms,
		Stderr: true,
		Line:   "err",
	}, {TimeMS: ms, Line: "part"}, {TimeMS: ms, Line: "\uFFFD"}, {TimeMS: ms, Line: "end"}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// Docker passes output without newlines on in parts of 16 KiB.
func TestReadLog_LongLinesAndProgressBars(t *testing.T) {
	t.Parallel()
	const at = "2026-01-02T03:04:05.678901234Z "
	parts := func(text string) (in []byte) {
		for len(text) > 16<<10 {
			in, text = append(in, frame(1, at+text[:16<<10])...), text[16<<10:]
		}
		return append(in, frame(1, at+text)...)
	}
	read := func(in []byte) (got []string) {
		if err := readLog(bytes.NewReader(in), func(f agentapi.LogFrame) error {
			if f.TimeMS == 0 {
				t.Error("a line without its time")
			}
			got = append(got, f.Line)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, char := range []string{"x", "é", "█", "🙂"} {
		text := "a" + strings.Repeat(char, 150_000/len(char))
		got := read(parts(text + "\n"))
		if len(got) != 3 || strings.Join(got, "") != text || strings.Contains(strings.Join(got, ""), "\uFFFD") {
			t.Errorf("150 kB of %s came in %d lines, and differ", char, len(got))
		}
	}
	bar := strings.Repeat("\r 42% |####      | 420/1000", 1500)
	got := read(append(frame(1, at+bar[:16<<10]), frame(1, at+bar[16<<10:32<<10])...))
	if len(got) != 3 || strings.Join(got, "\r") != bar[:32<<10] {
		t.Errorf("a progress bar that goes on came in %d lines", len(got))
	}
	if got := read(append(frame(1, at+"windows\r"), frame(1, at+"\n")...)); len(got) != 1 || got[0] != "windows" {
		t.Errorf("a line end that Docker cut: %q", got)
	}
}

func FuzzReadLog(f *testing.F) {
	f.Add(frame(1, "2026-01-02T03:04:05Z x\n"))
	f.Add([]byte{9, 0, 0, 0, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = readLog(bytes.NewReader(b), func(l agentapi.LogFrame) error {
			if len(l.Line) > len(b)*3+maxLine {
				t.Error("a line longer than what came")
			}
			return nil
		})
	})
}

// When a caller gives up, it leaves either a running container or none. No container may appear later, after the caller
// has learned that there is none and has stopped looking.
func TestACreationIsNotLeftHalfDone(t *testing.T) {
	t.Parallel()
	e, spec, files := setUp(t)
	if _, err := e.EnsureNetwork(t.Context()); err != nil {
		t.Fatal(err)
	}
	for after := range 12 {
		spec.Epoch = 10 + after
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(after)*6*time.Millisecond)
		c, err := e.EnsureGuest(ctx, spec, files)
		cancel()
		if err == nil && c.State != Running {
			t.Errorf("given up after %d ms: %+v", 6*after, c)
		}
		if err := e.Remove(t.Context(), spec.LeaseRef, Guest); err != nil {
			t.Error(err)
		}
	}
	spec.Epoch = 9 // made after all that was under way in the daemon
	if _, err := e.EnsureGuest(t.Context(), spec, files); err != nil {
		t.Fatal(err)
	}
	if err := e.Remove(t.Context(), spec.LeaseRef, Guest); err != nil {
		t.Error(err)
	}
	left, err := e.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range left {
		t.Errorf("left: %s %s", c.Ref, c.State)
		if err := e.Remove(t.Context(), c.Ref, c.Role); err != nil {
			t.Error(err)
		}
	}
}
