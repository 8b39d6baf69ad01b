package hostmem

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const gb = int64(1) << 30

// tree is a fake /proc and /sys/fs/cgroup.
type tree struct {
	t    *testing.T
	proc string
	grp  string
}

func newTree(t *testing.T) tree {
	return tree{t, t.TempDir(), t.TempDir()}
}

func (f tree) write(path, text string) {
	f.t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		f.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		f.t.Fatal(err)
	}
}

func (f tree) reader() Reader { return Reader{ProcFS: f.proc, CgroupFS: f.grp} }

func (f tree) memory(total, available int64) {
	f.write(filepath.Join(f.proc, "meminfo"), fmt.Sprintf("MemTotal: %d kB\nMemFree: 1 kB\nMemAvailable: %d kB\n",
		total>>10, available>>10))
}

// process adds a process of a container. maps are lines of smaps.
func (f tree) process(pid int, container string, smaps ...string) {
	f.write(filepath.Join(f.proc, fmt.Sprint(pid), "cgroup"), "0::/system.slice/docker-"+container+".scope\n")
	f.write(filepath.Join(f.proc, fmt.Sprint(pid), "smaps"), strings.Join(smaps, "\n")+"\n")
}

func (f tree) used(container string, current, file, shmem int64) {
	dir := filepath.Join(f.grp, "system.slice/docker-"+container+".scope")
	f.write(filepath.Join(dir, "memory.current"), fmt.Sprintln(current))
	f.write(filepath.Join(dir, "memory.stat"), fmt.Sprintf("anon 1\nfile %d\nshmem %d\n", file, shmem))
}

// mapped is a mapping of bytes at an address.
func mapped(at, bytes int64, path string, details ...string) string {
	first := fmt.Sprintf("%x-%x rw-s 00000000 00:06 597 %28s", at, at+bytes, path)
	return strings.Join(append([]string{first}, details...), "\n")
}

func name(c byte) string { return strings.Repeat(string(c), 64) }

func (f tree) hold(container string) Hold {
	f.t.Helper()
	holds, err := f.reader().Holds([]string{container})
	if err != nil {
		f.t.Fatal(err)
	}
	return holds[container]
}

// Only system memory counts, which the control device maps: not the GPUs' own memory, not managed memory, which the
// control group counts, and not the memory of other containers and of the host's programs.
func TestWhatCountsAsPinned(t *testing.T) {
	t.Parallel()
	f := newTree(t)
	f.process(10, name('a'),
		mapped(0x7f0000000000, 3*gb, "/dev/nvidiactl"),
		mapped(0x7f1000000000, 70*gb, "/dev/nvidia0"),
		mapped(0x7f5000000000, 70*gb, "/dev/nvidia-uvm"),
		"7f9000000000-7f9040000000 rw-p 00000000 00:00 0",
		"7fa000000000-7fa040000000 rw-p 00000000 00:06 597 /dev/nvidiactl",
		mapped(0x7fb000000000, 9*gb, "/dev/shm/cache"))
	f.process(11, name('b'), mapped(0x7f0000000000, 50*gb, "/dev/nvidiactl"))
	f.write(filepath.Join(f.proc, "12/cgroup"), "0::/user.slice\n")
	f.write(filepath.Join(f.proc, "12/smaps"), mapped(0x7f0000000000, 50*gb, "/dev/nvidiactl"))
	f.used(name('a'), 9*gb, 6*gb, 2*gb)
	if got, want := f.hold(name('a')), (Hold{Pinned: 3 * gb, Used: 5 * gb}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// Workers that were forked have their parent's mappings: the memory is there once.
func TestForkedProcessesHoldTheMemoryOnce(t *testing.T) {
	t.Parallel()
	f := newTree(t)
	for pid := 20; pid < 36; pid++ {
		f.process(pid, name('a'), mapped(0x7f0000000000, 4*gb, "/dev/nvidiactl"))
		quarter := fmt.Sprintf("Rss: %d kB\nPss: %d kB", 4*gb>>10, gb>>12)
		f.process(pid+100, name('b'), mapped(0x7f0000000000, 4*gb, "/dev/nvidiactl", "Size: 4194304 kB", quarter))
	}
	if got := f.hold(name('a')).Pinned; got != 4*gb {
		t.Errorf("without shares: %d GiB, want 4", got/gb)
	}
	if got := f.hold(name('b')).Pinned; got != 4*gb {
		t.Errorf("with shares: %d GiB, want 4", got/gb)
	}
}

// A renter can rename or delete the device node in the container, or name a file of their own like it. The device
// decides. Pages that are taken out of the page tables stay allocated.
func TestThePinnedDeviceCountsWhateverItsName(t *testing.T) {
	t.Parallel()
	f := newTree(t)
	f.process(30, name('a'),
		mapped(0x10000000, 2*gb, "/dev/nothing (deleted)", "Rss: 0 kB", "Pss: 0 kB"),
		mapped(0x200000000, 5*gb, "/dev/nvidiactl"))
	files := filepath.Join(f.proc, "30/map_files")
	if err := os.MkdirAll(files, 0o755); err != nil {
		t.Fatal(err)
	}
	device := filepath.Join(files, fmt.Sprintf("%x-%x", 0x10000000, 0x10000000+2*gb))
	if err := unix.Mknod(device, unix.S_IFCHR|0o600, int(unix.Mkdev(195, 255))); err != nil {
		t.Fatalf("make a device node (this test needs root): %v", err)
	}
	f.write(filepath.Join(files, fmt.Sprintf("%x-%x", int64(0x200000000), 0x200000000+5*gb)), "a file of the renter's")
	if got := f.hold(name('a')).Pinned; got != 2*gb {
		t.Errorf("%d GiB, want the 2 of the device", got/gb)
	}
	f.process(31, name('b'), mapped(0x10000000, gb, "/dev/nvidiactl (deleted)"))
	if got := f.hold(name('b')).Pinned; got != gb {
		t.Errorf("deleted: %d GiB, want 1", got/gb)
	}
}

func TestControlGroupsOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	f := newTree(t)
	f.process(40, name('a'))
	f.write(filepath.Join(f.proc, "40/cgroup"), "12:pids:/docker/"+name('a')+"\n9:memory:/docker/"+name('a')+"\n")
	dir := filepath.Join(f.grp, "memory/docker", name('a'))
	f.write(filepath.Join(dir, "memory.usage_in_bytes"), fmt.Sprintln(7*gb))
	f.write(filepath.Join(dir, "memory.stat"), fmt.Sprintf("cache 1\ntotal_cache %d\ntotal_shmem %d\n", 3*gb, gb))
	if got := f.hold(name('a')).Used; got != 5*gb {
		t.Errorf("%d GiB, want 5", got/gb)
	}
}

func TestTheHostsMemory(t *testing.T) {
	t.Parallel()
	f := newTree(t)
	if _, err := f.reader().Host(); err == nil {
		t.Error("no error without meminfo")
	}
	for _, tc := range []struct {
		total, available int64
		short            bool
	}{
		{16 * gb, gb, false}, {16 * gb, gb / 4, true},
		{128 * gb, 3 * gb, false}, {128 * gb, 2 * gb, true},
		{2048 * gb, 9 * gb, false}, {2048 * gb, 7 * gb, true},
	} {
		f.memory(tc.total, tc.available)
		h, err := f.reader().Host()
		if err != nil || h.Total != tc.total || h.Available != tc.available || h.Short() != tc.short {
			t.Errorf("%d of %d GiB: %+v short %t, %v", tc.available/gb, tc.total/gb, h, h.Short(), err)
		}
	}
}

// A lease that stays within what it was rented with is never ended, whatever others do. Of those that exceed it, the
// one that does so by the most is ended.
func TestBlame(t *testing.T) {
	t.Parallel()
	short, plenty := Host{Total: 512 * gb, Available: gb}, Host{Total: 512 * gb, Available: 100 * gb}
	claim := func(c byte, limit, pinned, used int64) Claim {
		return Claim{Container: string(c), Limit: limit * gb, GPUs: 1, Hold: Hold{pinned * gb, used * gb}}
	}
	for _, tc := range []struct {
		name   string
		host   Host
		claims []Claim
		want   string
	}{
		{"memory is not short", plenty, []Claim{claim('a', 32, 300, 1)}, ""},
		{"one pins more than it has", short, []Claim{claim('a', 32, 300, 1), claim('b', 128, 60, 60)}, "a"},
		// b has the larger limit and pins more of it: a, which exceeds its own, is ended.
		{"the neighbour pins more, within its limit", short, []Claim{claim('a', 32, 40, 1), claim('b', 256, 200, 50)}, "a"},
		{"the largest excess", short, []Claim{claim('a', 32, 40, 1), claim('b', 256, 300, 50)}, "b"},
		// A lease that hides its memory is not found, and no neighbour is ended for it.
		{"no excess", short, []Claim{claim('a', 32, 0, 31), claim('b', 128, 64, 63)}, ""},
		// The control group holds what it counts; at its limit the kernel ends that group's own programs.
		{"only counted memory", short, []Claim{claim('a', 32, 0, 40)}, ""},
		{"CUDA's own buffers", short, []Claim{{Container: "a", Limit: 32 * gb, GPUs: 8, Hold: Hold{2 * gb, 32 * gb}}}, ""},
		{"no limit", short, []Claim{claim('a', 0, 300, 1)}, ""},
	} {
		got, ok := Blame(tc.host, tc.claims)
		if got.Container != tc.want || ok != (tc.want != "") {
			t.Errorf("%s: %q, want %q", tc.name, got.Container, tc.want)
		}
	}
	detail := claim('a', 32, 300, 1).Detail(short)
	for _, want := range []string{"300.0 GiB of pinned", "1.0 GiB of other", "its 32.0 GiB", "1.0 GiB left"} {
		if !strings.Contains(detail, want) {
			t.Errorf("%q does not say %q", detail, want)
		}
	}
}
