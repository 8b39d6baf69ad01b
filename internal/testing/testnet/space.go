package testnet

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/net/netns"
)

// space is a network, process, mount and host-name namespace, held by one small process that is the first in it. That
// process waits for the end of a pipe that only this process holds: if this process is killed it ends, and with it
// everything that runs in the space, including containers with sessions of their own.
type space struct {
	cmd   *exec.Cmd
	alive *os.File // closing it ends the space
	net   *os.File // its network namespace
	pid   int
	once  sync.Once
}

// keeper is the space's first process. bash reaps orphans, as an init must.
const keeper = `mount --make-rprivate / && mount -t proc proc /proc && hostname "$1" && ip link set lo up && echo ready && read -r`

func newSpace(dir, name string) (*space, error) {
	hold, alive, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer hold.Close()
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s := &space{alive: alive}
	s.cmd = exec.Command("bash", "-c", keeper, "keeper", name)
	s.cmd.Stdin, s.cmd.Stderr = hold, log
	s.cmd.Env = []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true,
		Cloneflags: unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWNS | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC}
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		alive.Close()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	s.pid = s.cmd.Process.Pid
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || strings.TrimSpace(line) != "ready" {
		s.end()
		said, _ := os.ReadFile(log.Name())
		return nil, fmt.Errorf("%s does not come up: %q %v: %s", name, line, err, said)
	}
	if s.net, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", s.pid)); err != nil {
		s.end()
		return nil, err
	}
	return s, nil
}

// inside runs f in the space's network; see agent/net/netns for what f may do.
func (s *space) inside(f func() error) error { return netns.Inside(s.net, f) }

// end ends everything in the space and returns when it is gone.
func (s *space) end() {
	s.once.Do(func() {
		s.alive.Close()
		_ = s.cmd.Process.Kill() // the kernel ends the rest of the space before this process can be reaped
		_ = s.cmd.Wait()
		if s.net != nil {
			s.net.Close()
		}
	})
}
