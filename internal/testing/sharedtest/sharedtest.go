// Package sharedtest runs the distribution's servers of shared file systems for tests: Ceph and Gluster in a network of
// their own, with clients in user space, and NFS in a Linux that runs as a process (user-mode-linux), because the
// kernel of the machine that runs the tests may have no client. `scripts/setup ceph shared` installs them.
package sharedtest

import (
	"embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/testing/cephtest"
	"github.com/musterhq/muster/internal/testing/child"
)

//go:embed *.sh
var scripts embed.FS

// address is that of all servers. The scripts know it, too.
const address = "10.99.0.1"

// Server is the servers of one shared file system.
type Server struct {
	kind    string // "ceph", "gluster": the name of the script that starts the servers
	dir     string
	network string // the file of its network namespace
	daemons *child.Process
}

// Ceph starts a monitor, a storage daemon and a metadata server.
func Ceph(t *testing.T) *Server { return start(t, "ceph") }

// Gluster starts a volume of one brick, on XFS.
func Gluster(t *testing.T) *Server { return start(t, "gluster") }

func start(t *testing.T, kind string) *Server {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "shared") // the paths of sockets must be short
	if err != nil {
		t.Fatal(err)
	}
	s := &Server{kind: kind, dir: dir}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.WriteFile(filepath.Join(dir, "ceph.sh"), cephtest.Script, 0o700); err != nil {
		t.Fatal(err)
	}
	names, err := scripts.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range names {
		b, err := scripts.ReadFile(n.Name())
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, n.Name()), b, 0o700)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	network := run(t, "unshare", "--net", "sh", "-c",
		"ip link set lo up && ip addr add "+address+"/32 dev lo && echo READY && exec sleep infinity")
	s.network = fmt.Sprintf("/proc/%d/ns/net", network.PID())
	s.serve(t, "new")
	return s
}

// serve starts the servers in a process namespace, whose processes the kernel kills together, with mounts of their own.
func (s *Server) serve(t *testing.T, how string) {
	t.Helper()
	s.daemons = run(t, "nsenter", "--net="+s.network, "unshare", "--pid", "--mount-proc", "--fork",
		"--kill-child", "bash", filepath.Join(s.dir, s.kind+".sh"), s.dir, how, address+":3300")
}

// Mount mounts the file system with a separate client and caches, as another host would. as is the name of the client
// for Ceph: "lab" may read and write, "admin" may do everything.
func (s *Server) Mount(t *testing.T, as string) string {
	t.Helper()
	point, _ := s.MountAt(t, t.TempDir(), as)
	return point
}

// MountAt mounts the file system at a folder. kill kills its client, and leaves the mount behind.
func (s *Server) MountAt(t *testing.T, point, as string) (_ string, kill func()) {
	t.Helper()
	client := run(t, "nsenter", "--net="+s.network, "bash", filepath.Join(s.dir, "mount.sh"), s.kind, s.dir, point, as)
	t.Cleanup(func() {
		if exec.Command("timeout", "-s", "KILL", "10", "umount", point).Run() != nil {
			_ = exec.Command("umount", "-l", point).Run()
			return
		}
		select { // one that is killed leaves what it has locked to its server's patience
		case <-client.Died():
		case <-time.After(10 * time.Second):
		}
	})
	return point, client.Kill
}

// Hang stops all servers: they keep their connections and answer nothing.
func (s *Server) Hang(t *testing.T) { s.signal(t, syscall.SIGSTOP) }

// Resume lets them go on.
func (s *Server) Resume(t *testing.T) { s.signal(t, syscall.SIGCONT) }

func (s *Server) signal(t *testing.T, sig syscall.Signal) {
	t.Helper()
	self, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		t.Fatal(err)
	}
	mine, err := os.Readlink(s.network)
	if err != nil {
		t.Fatal(err)
	}
	found := false
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		net, _ := os.Readlink(d + "/ns/net")
		pids, _ := os.Readlink(d + "/ns/pid")
		if net != mine || pids == self {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(d))
		found = syscall.Kill(pid, sig) == nil || found
	}
	if !found {
		t.Fatalf("no server of %s runs", s.kind)
	}
}

// Kill kills all servers at once.
func (s *Server) Kill() {
	s.daemons.Kill()
}

// Restart kills all servers and starts them again, on what they had stored.
func (s *Server) Restart(t *testing.T) {
	t.Helper()
	s.Kill()
	s.serve(t, "again")
}

// Admin runs a command of the servers' administrator, with the servers' folder as $0.
func (s *Server) Admin(t *testing.T, script string) string {
	t.Helper()
	cmd := exec.Command("nsenter", "--net="+s.network, "sh", "-c", script, s.dir)
	cmd.Env = append(os.Environ(), "CEPH_CONF="+s.dir+"/ceph.conf")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return string(out)
}

// readyWithin is how long a program may take until it prints that it is ready.
const readyWithin = 5 * time.Minute

// run starts a program that prints READY, and which ends with the test.
func run(t *testing.T, args ...string) *child.Process {
	t.Helper()
	p, err := child.Start(exec.Command(args[0], args[1:]...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Kill)
	if err := p.Await("READY", readyWithin); err != nil {
		t.Fatal(err)
	}
	return p
}
