package nodeuse

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const container = "4d1f0c5a0b0e4a2f8c9d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a2b1c0d9e8f7a6b"

// machine writes the files of a machine with one node, and returns a Reader of it.
func machine(t *testing.T, files map[string]string) Reader {
	t.Helper()
	root := t.TempDir()
	for name, content := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Reader{ProcFS: filepath.Join(root, "proc"), SysFS: filepath.Join(root, "sys"),
		CgroupFS: filepath.Join(root, "cgroup"), Overlay: "ovl0"}
}

const netDev = `Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|` +
	`bytes    packets errs drop fifo colls carrier compressed
    lo:  999       1    0    0    0     0          0         0      999       1    0    0    0     0       0          0
  eth0: 1000       1    0    0    0     0          0         0      200       1    0    0    0     0       0          0
  ovl0:70000       1    0    0    0     0          0         0    80000       1    0    0    0     0       0          0
`

func show(u Use) (out []int64) {
	for _, n := range []*int64{u.NetRx, u.NetTx, u.RanksRx, u.RanksTx, u.DiskRead, u.DiskWrite} {
		if n == nil {
			out = append(out, -1)
		} else {
			out = append(out, *n)
		}
	}
	return out
}

func TestOf(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		files map[string]string
		want  [6]int64
	}{
		"control groups of version 2, with a device on another": {map[string]string{
			"proc/42/cgroup":  "0::/system.slice/docker-" + container + ".scope\n",
			"proc/42/net/dev": netDev,
			"cgroup/system.slice/docker-" + container + ".scope/io.stat": "259:0 rbytes=10 wbytes=20 rios=1 wios=1\n" +
				"253:0 rbytes=10 wbytes=20 rios=1 wios=1\n7:3 rbytes=10 wbytes=20\n8:0 rbytes=3 wbytes=4\n",
			"sys/dev/block/253:0/slaves/nvme0n1": "",
		}, [6]int64{1000, 200, 70_000, 80_000, 13, 24}},
		"control groups of version 1": {map[string]string{
			"proc/42/cgroup": "5:memory:/docker/x\n4:blkio:/docker/" + container + "\n",
			"cgroup/blkio/docker/" + container + "/blkio.throttle.io_service_bytes_recursive": "8:0 Read 5\n8:0 Write 6\n" +
				"8:0 Total 11\nTotal 11\n",
			"cgroup/blkio/blkio.throttle.io_service_bytes_recursive": "8:0 Read 50\n8:0 Write 60\nTotal 110\n",
		}, [6]int64{-1, -1, -1, -1, 5, -1}},
		"control groups of version 1, of a kernel that does not count there": {map[string]string{
			"proc/42/cgroup": "4:blkio:/docker/" + container + "\n",
			"cgroup/blkio/docker/" + container + "/blkio.throttle.io_service_bytes_recursive": "Total 0\n",
			"cgroup/blkio/blkio.throttle.io_service_bytes_recursive":                          "Total 0\n",
		}, [6]int64{-1, -1, -1, -1, -1, -1}},
		"a group without the disk controller": {map[string]string{
			"proc/42/cgroup":  "0::/docker/" + container + "\n",
			"proc/42/net/dev": strings.ReplaceAll(netDev, "ovl0", "eth1"),
		}, [6]int64{71_000, 80_200, -1, -1, -1, -1}},
	} {
		u, err := machine(t, c.files).Of(42, container)
		if got := show(u); err != nil || [6]int64(got) != c.want {
			t.Errorf("%s: %v %v, want %v", name, got, err, c.want)
		}
	}
}

// If the node's pid now belongs to another program, that program's traffic is not reported.
func TestOf_AnotherProgram(t *testing.T) {
	t.Parallel()
	r := machine(t, map[string]string{"proc/42/cgroup": "0::/user.slice\n", "proc/42/net/dev": netDev})
	for _, id := range []string{container, ""} {
		if u, err := r.Of(42, id); err == nil {
			t.Errorf("container %q: %v", id, show(u))
		}
	}
	if _, err := r.Of(43, container); err == nil {
		t.Error("counters were read for a pid without a process")
	}
}
