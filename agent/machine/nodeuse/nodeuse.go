// Package nodeuse reads how much a node's processes have exchanged with networks and disks, from the counters that the
// kernel keeps of its network namespace and its control group. Reading asks neither Docker nor a disk.
package nodeuse

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Use is counters in bytes, which only grow while the node runs. A nil counter is not known.
type Use struct {
	NetRx, NetTx        *int64 // with the internet, received and sent
	RanksRx, RanksTx    *int64 // with the other ranks
	DiskRead, DiskWrite *int64
}

// Reader reads the counters. The zero Reader reads this machine.
type Reader struct {
	ProcFS   string // default: /proc
	SysFS    string // default: /sys
	CgroupFS string // default: /sys/fs/cgroup
	Overlay  string // name of the network device that leads to the other ranks
}

func path(root, otherwise string, elem ...string) string {
	if root == "" {
		root = otherwise
	}
	return filepath.Join(append([]string{root}, elem...)...)
}

// Of reads the counters of the node whose first process has a pid. It fails if that process is not one of the
// container: the pid may belong to another program by now.
func (r Reader) Of(pid int, container string) (Use, error) {
	proc := path(r.ProcFS, "/proc", strconv.Itoa(pid))
	before, err := groupsOf(proc, container)
	if err != nil {
		return Use{}, err
	}
	var u Use
	if b, err := os.ReadFile(filepath.Join(proc, "net/dev")); err == nil {
		r.network(b, &u)
	}
	r.disks(before, &u)
	// The pid may have been given away while its network was read.
	if _, err := groupsOf(proc, container); err != nil {
		return Use{}, err
	}
	return u, nil
}

func groupsOf(proc, container string) (string, error) {
	groups, err := os.ReadFile(filepath.Join(proc, "cgroup"))
	if err != nil {
		return "", err
	}
	if container == "" || !bytes.Contains(groups, []byte(container)) {
		return "", fmt.Errorf("%s is no process of container %s", proc, container)
	}
	return string(groups), nil
}

// network adds up the counters of /proc/PID/net/dev: a line for each device, with its name, eight numbers of what it
// received and eight of what it sent, bytes first.
func (r Reader) network(dev []byte, u *Use) {
	for line := range strings.Lines(string(dev)) {
		name, rest, ok := strings.Cut(line, ":")
		f := strings.Fields(rest)
		name = strings.TrimSpace(name)
		if !ok || len(f) < 9 || name == "lo" {
			continue
		}
		rx, err := strconv.ParseInt(f[0], 10, 64)
		tx, err2 := strconv.ParseInt(f[8], 10, 64)
		if err != nil || err2 != nil {
			continue
		}
		if name == r.Overlay {
			u.RanksRx, u.RanksTx = sum(u.RanksRx, rx), sum(u.RanksTx, tx)
		} else {
			u.NetRx, u.NetTx = sum(u.NetRx, rx), sum(u.NetTx, tx)
		}
	}
}

func sum(n *int64, more int64) *int64 {
	if n != nil {
		more += *n
	}
	return &more
}

// disks adds up what the control group has read and written. groups is /proc/PID/cgroup.
func (r Reader) disks(groups string, u *Use) {
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		switch {
		case f[1] == "" && f[0] == "0":
			if b, err := os.ReadFile(path(r.CgroupFS, "/sys/fs/cgroup", f[2], "io.stat")); err == nil {
				r.unified(string(b), u)
			}
		case f[1] == "blkio":
			if b, err := r.blkio(f[2]); err == nil {
				r.separate(b, u)
			}
		}
	}
}

// unified reads io.stat: "8:0 rbytes=1 wbytes=2 …". A group that has used no disk has no line.
func (r Reader) unified(stat string, u *Use) {
	u.DiskRead, u.DiskWrite = sum(u.DiskRead, 0), sum(u.DiskWrite, 0)
	for line := range strings.Lines(stat) {
		f := strings.Fields(line)
		if len(f) == 0 || r.stacked(f[0]) {
			continue
		}
		for _, x := range f[1:] {
			name, value, _ := strings.Cut(x, "=")
			n, err := strconv.ParseInt(value, 10, 64)
			switch {
			case err != nil:
			case name == "rbytes":
				u.DiskRead = sum(u.DiskRead, n)
			case name == "wbytes":
				u.DiskWrite = sum(u.DiskWrite, n)
			}
		}
	}
}

// blkio returns what a group of version 1 has read. Linux 6.10 and later count there only once something is throttled
// (commit a3166c51702b): if not even the root group, which has all devices, has a line of one, nothing is counted.
func (r Reader) blkio(group string) (string, error) {
	const counter = "blkio.throttle.io_service_bytes_recursive"
	all, err := os.ReadFile(path(r.CgroupFS, "/sys/fs/cgroup", "blkio", counter))
	if err != nil {
		return "", err
	}
	if !bytes.Contains(all, []byte(" Read ")) {
		return "", errors.New("this kernel does not count what a group reads")
	}
	b, err := os.ReadFile(path(r.CgroupFS, "/sys/fs/cgroup", "blkio", group, counter))
	return string(b), err
}

// separate reads the file of the first version of control groups: "8:0 Read 1". Version 1 counts what the kernel writes
// back later, which is nearly all that a program writes, for no group: how much a node writes is not known.
func (r Reader) separate(stat string, u *Use) {
	u.DiskRead = sum(u.DiskRead, 0)
	for line := range strings.Lines(stat) {
		f := strings.Fields(line)
		if len(f) != 3 || r.stacked(f[0]) {
			continue
		}
		if n, err := strconv.ParseInt(f[2], 10, 64); err == nil && f[1] == "Read" {
			u.DiskRead = sum(u.DiskRead, n)
		}
	}
}

// loopMajor is the major number of devices that are files. What they do counts again on the disk of the file.
const loopMajor = "7:"

// stacked reports whether a device lies on others, whose counters contain what it does.
func (r Reader) stacked(device string) bool {
	if strings.HasPrefix(device, loopMajor) {
		return true
	}
	parts, err := os.ReadDir(path(r.SysFS, "/sys", "dev/block", device, "slaves"))
	return err == nil && len(parts) > 0
}
