// Package hostmem finds the lease that has taken the host's memory outside its limit.
//
// Memory that NVIDIA's kernel module allocates for a program, and that the program maps from the control device, is not
// charged to the program's control group (nv-vm.c of NVIDIA's open kernel modules allocates without __GFP_ACCOUNT). So
// no memory limit holds it, and the kernel's OOM killer would end a neighbour for it.
//
// Not every driver pins memory like this. On an H200 with driver 580.159.04 and Linux 6.18, what cuMemHostAlloc and
// PyTorch's pin_memory pin is shared memory of the program's own (a mapping of /dev/zero), which its control group
// counts and limits: 8 GiB under a limit of 1 GiB end the program (docs/hardware/NVIDIA-H200). There, nothing is left
// for this package to do.
//
// Invariants: a lease is blamed only for what its own processes hold, and only if that exceeds the memory that it was
// rented with. Nothing that another lease does can put a lease over its own limit. Memory that belongs to no lease, or
// that cannot be assigned, ends no lease.
package hostmem

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Reader reads the host's memory and what containers hold of it. The zero Reader reads this machine.
type Reader struct {
	ProcFS   string // default: /proc
	CgroupFS string // default: /sys/fs/cgroup
	Meminfo  string // default: meminfo in ProcFS
	StandIn  string // in tests: the path of a file that stands for NVIDIA's control device
}

func (r Reader) proc(elem ...string) string {
	root := r.ProcFS
	if root == "" {
		root = "/proc"
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// Host is the state of the host's memory, in bytes.
type Host struct {
	Total     int64
	Available int64 // MemAvailable: what programs can still get without swapping
}

// Short reports whether less is available than the host needs to go on without the kernel's OOM killer.
func (h Host) Short() bool { return h.Available < h.Floor() }

// Floor is how much memory must stay available: 2 % of the host's, at least 512 MiB and at most 8 GiB.
func (h Host) Floor() int64 { return min(max(h.Total/50, 512<<20), 8<<30) }

// Host reads the state of the host's memory.
func (r Reader) Host() (Host, error) {
	path := r.Meminfo
	if path == "" {
		path = r.proc("meminfo")
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return Host{}, err
	}
	facts := fields(b)
	h := Host{Total: facts["MemTotal"] << 10, Available: facts["MemAvailable"] << 10}
	if _, ok := facts["MemAvailable"]; !ok || h.Total <= 0 {
		return Host{}, fmt.Errorf("%s has no MemAvailable", path)
	}
	return h, nil
}

// Hold is the host memory that a container's processes hold, in bytes.
type Hold struct {
	Pinned int64 // through NVIDIA's driver, outside the limit
	Used   int64 // by the control group's count, without files that the kernel can drop
}

var containerID = regexp.MustCompile(`[0-9a-f]{64}`)

// Holds reads what the named containers hold. A process that ends meanwhile is left out. Containers without processes
// have no entry.
func (r Reader) Holds(containers []string) (map[string]Hold, error) {
	dirs, err := os.ReadDir(r.proc())
	if err != nil {
		return nil, err
	}
	wanted := map[string]bool{}
	for _, c := range containers {
		wanted[c] = true
	}
	out := map[string]Hold{}
	seen := map[string]map[string]bool{} // ranges by container
	for _, d := range dirs {
		if _, err := strconv.Atoi(d.Name()); err != nil {
			continue
		}
		groups, err := os.ReadFile(r.proc(d.Name(), "cgroup"))
		id := containerID.FindString(string(groups))
		if err != nil || !wanted[id] {
			continue
		}
		h, known := out[id]
		if !known {
			h.Used, seen[id] = r.used(string(groups)), map[string]bool{}
		}
		h.Pinned += r.pinnedBy(d.Name(), seen[id])
		out[id] = h
	}
	return out, nil
}

// mapping is one line of /proc/PID/smaps, with the details that follow it.
type mapping struct {
	addresses string // from-to, as in map_files
	bytes     int64
	rss, pss  int64
	path      string
}

// pinnedBy returns how much memory of the driver's a process has mapped. Only the control device maps system memory;
// the GPUs' own devices map the GPUs' memory (nv-mmap.c). A forked process shares its parent's mappings: if all pages
// are present, each process counts its share (Pss), and otherwise a range counts once per container.
func (r Reader) pinnedBy(pid string, seen map[string]bool) int64 {
	var sum int64
	for _, m := range r.mappings(pid) {
		if !r.control(pid, m) {
			continue
		}
		switch {
		case m.rss >= m.bytes && m.pss > 0:
			sum += m.pss
		case !seen[m.addresses]:
			sum += m.bytes
		}
		seen[m.addresses] = true
	}
	return sum
}

// mappings returns the mappings of device files and of deleted or renamed ones: all that have a path and are shared.
func (r Reader) mappings(pid string) []mapping {
	b, err := os.ReadFile(r.proc(pid, "smaps"))
	if err != nil {
		if b, err = os.ReadFile(r.proc(pid, "maps")); err != nil {
			return nil
		}
	}
	var out []mapping
	current := -1 // index in out of the mapping that details belong to
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if m, ok := parseMapping(s.Text()); ok {
			current = -1
			if m.path != "" {
				out, current = append(out, m), len(out)
			}
			continue
		}
		if current < 0 {
			continue
		}
		name, rest, _ := strings.Cut(s.Text(), ":")
		kb, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		switch {
		case err != nil:
		case name == "Rss":
			out[current].rss = kb << 10
		case name == "Pss":
			out[current].pss = kb << 10
		}
	}
	return out
}

// parseMapping parses the first line of a mapping: addresses, rights, offset, device, inode, path. ok is false for a
// line of details. A private mapping has no path in the result: it is memory of the process's own.
func parseMapping(line string) (m mapping, ok bool) {
	f := strings.Fields(line)
	if len(f) < 5 {
		return m, false
	}
	from, to, ok := strings.Cut(f[0], "-")
	lo, err1 := strconv.ParseUint(from, 16, 64)
	hi, err2 := strconv.ParseUint(to, 16, 64)
	if !ok || err1 != nil || err2 != nil || hi < lo || hi-lo > 1<<62 {
		return m, false
	}
	m.addresses, m.bytes = f[0], int64(hi-lo)
	if len(f) > 5 && strings.HasSuffix(f[1], "s") {
		m.path = strings.Join(f[5:], " ")
	}
	return m, true
}

const (
	nvidiaMajor  = 195
	controlMinor = 255
	controlPath  = "/dev/nvidiactl"
)

// control reports whether a mapping is one of NVIDIA's control device. The device that is mapped decides, because a
// container's root can rename or remove its device nodes. Its name decides where the kernel does not show the device.
func (r Reader) control(pid string, m mapping) bool {
	if r.StandIn != "" {
		return m.path == r.StandIn
	}
	var st unix.Stat_t
	if err := unix.Stat(r.proc(pid, "map_files", m.addresses), &st); err == nil {
		return st.Mode&unix.S_IFMT == unix.S_IFCHR && unix.Major(uint64(st.Rdev)) == nvidiaMajor &&
			unix.Minor(uint64(st.Rdev)) == controlMinor
	} else if !errors.Is(err, unix.ENOENT) {
		return false
	}
	return strings.TrimSuffix(m.path, " (deleted)") == controlPath
}

// used returns the memory that the control group counts, without files that the kernel can drop; 0 if it cannot be
// read. groups is /proc/PID/cgroup.
func (r Reader) used(groups string) int64 {
	root := r.CgroupFS
	if root == "" {
		root = "/sys/fs/cgroup"
	}
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch {
		case f[1] == "" && f[0] == "0": // cgroup v2
			dir := filepath.Join(root, f[2])
			if n, ok := number(filepath.Join(dir, "memory.current")); ok {
				stat := stats(filepath.Join(dir, "memory.stat"))
				return max(0, n-max(0, stat["file"]-stat["shmem"]))
			}
		case f[1] == "memory":
			dir := filepath.Join(root, "memory", f[2])
			if n, ok := number(filepath.Join(dir, "memory.usage_in_bytes")); ok {
				stat := stats(filepath.Join(dir, "memory.stat"))
				return max(0, n-max(0, stat["total_cache"]-stat["total_shmem"]))
			}
		}
	}
	return 0
}

func number(path string) (int64, bool) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
	return n, err == nil
}

func stats(path string) map[string]int64 {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	return fields(b)
}

// fields parses lines of a name and a number, with or without a colon and a unit.
func fields(b []byte) map[string]int64 {
	out := map[string]int64{}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) >= 2 {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				out[strings.TrimSuffix(f[0], ":")] = n
			}
		}
	}
	return out
}
