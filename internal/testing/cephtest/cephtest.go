// Package cephtest runs a small Ceph of the distribution for tests: a monitor, a storage daemon and a metadata server.
// `scripts/setup ceph` installs it.
package cephtest

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/testing/child"
)

// Script starts a Ceph.
//
//go:embed ceph.sh
var Script []byte

// startWithin is how long a Ceph may take until it answers.
const startWithin = 2 * time.Minute

// Cluster is a running Ceph.
type Cluster struct {
	Conf string // its configuration file, for CEPH_CONF; its other files are in the same folder

	servers *child.Process // nil: another process has started it
}

// Start starts a Ceph whose monitor listens on addr, "127.0.0.1:40001". Call Stop at the end.
func Start(addr string) (*Cluster, error) {
	dir, err := os.MkdirTemp("/var/tmp", "ceph") // the paths of sockets must be short
	if err != nil {
		return nil, err
	}
	script := filepath.Join(dir, "ceph.sh")
	if err := os.WriteFile(script, Script, 0o700); err != nil {
		return nil, err
	}
	c := &Cluster{Conf: filepath.Join(dir, "ceph.conf")}
	// In a process namespace the kernel kills the servers together.
	c.servers, err = child.Start(exec.Command("unshare", "--pid", "--mount-proc", "--fork", "--kill-child", "bash", script,
		dir, "new", addr))
	if err == nil {
		err = c.servers.Await("READY", startWithin)
	}
	if err != nil {
		c.Stop()
		return nil, err
	}
	return c, nil
}

// Stop kills all servers and removes their files.
func (c *Cluster) Stop() {
	if c.servers != nil {
		c.servers.Kill()
	}
	_ = os.RemoveAll(filepath.Dir(c.Conf))
}

// command is a command that uses this Ceph.
func (c *Cluster) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "CEPH_CONF="+c.Conf)
	return cmd
}

func (c *Cluster) run(ctx context.Context, args ...string) error {
	var bad bytes.Buffer
	cmd := c.command(ctx, args...)
	cmd.Stderr = &bad
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, bad.String())
	}
	return nil
}
