package firewall

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// cgroupFS is where the machine's control groups are mounted: nft looks paths up there.
const cgroupFS = "/sys/fs/cgroup"

// initCgroupNS is the kernel's number of the first namespace of control groups (PROC_CGROUP_INIT_INO).
const initCgroupNS = "cgroup:[4026531835]"

// unified returns the folder of the unified hierarchy below cgroupFS: on machines that also use the first version, it
// is mounted apart.
func unified() (string, error) {
	for _, below := range []string{"", "unified"} {
		var st unix.Statfs_t
		if err := unix.Statfs(filepath.Join(cgroupFS, below), &st); err == nil && st.Type == unix.CGROUP2_SUPER_MAGIC {
			return below, nil
		}
	}
	return "", fmt.Errorf("the unified hierarchy of control groups is not mounted at %s", cgroupFS)
}

// hostGroup returns the folder of the host's control groups, below cgroupFS. It is at the top of the hierarchy: the
// rules name the level of a group, and an update or restart of the agent's unit must not touch its processes.
func hostGroup(host8 string) (string, error) {
	below, err := unified()
	return filepath.Join(below, "muster_"+host8), err
}

// makeGroup makes the control group of a run's mounts and returns its path below cgroupFS.
func makeGroup(host8, run string) (string, error) {
	// In another namespace of control groups, kernels before 6.12 count levels from a top that is not seen there: no
	// packet would match.
	if ns, err := os.Readlink("/proc/thread-self/ns/cgroup"); err != nil || ns != initCgroupNS {
		return "", fmt.Errorf("this process is in a namespace of control groups (%s, %v)", ns, err)
	}
	host, err := hostGroup(host8)
	if err != nil {
		return "", err
	}
	path := filepath.Join(host, run)
	return path, os.MkdirAll(filepath.Join(cgroupFS, path), 0o755)
}

// Confine puts a process into the control group of a run's mounts, which EnsureMounts has made. All sockets that the
// process or its children open from then on are limited and counted. A process that is there already stays.
func Confine(host8, run string, pid int) error {
	if !runShape.MatchString(run) {
		return fmt.Errorf("%q does not name a run", run)
	}
	host, err := hostGroup(host8)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(cgroupFS, host, run, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0)
}

// groups lists the runs that have a control group.
func groups(host8 string) (runs []string, err error) {
	host, err := hostGroup(host8)
	if err != nil {
		return nil, nil //nolint:nilerr // without the hierarchy there are none
	}
	entries, err := os.ReadDir(filepath.Join(cgroupFS, host))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries {
		if e.IsDir() && runShape.MatchString(e.Name()) {
			runs = append(runs, e.Name())
		}
	}
	return runs, err
}

// removeGroup removes the control group of a run's mounts, and the host's own once it was the last.
func removeGroup(host8, run string) error {
	host, err := hostGroup(host8)
	if err != nil {
		return nil //nolint:nilerr // without the hierarchy there is none
	}
	err = os.Remove(filepath.Join(cgroupFS, host, run))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	_ = os.Remove(filepath.Join(cgroupFS, host)) // others may be in it
	return err
}
