// Package cephtest runs a small Ceph of the distribution for tests: a monitor, a manager, and a storage daemon that
// keeps its objects in memory, all on loopback. `scripts/setup ceph` installs it.
package cephtest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"text/template"
	"time"

	"github.com/google/uuid"

	"github.com/musterhq/muster/internal/testing/child"
)

// startWithin is how long a daemon may take until it answers.
const startWithin = time.Minute

// Cluster is a running Ceph.
type Cluster struct {
	Dir  string // its files; removed by Stop
	Conf string // its configuration file, for CEPH_CONF

	mu      sync.Mutex
	daemons []*child.Process
}

var conf = template.Must(template.New("").Parse(`[global]
fsid = {{.FSID}}
mon host = v2:{{.Monitor}}
public addr = 127.0.0.1
keyring = {{.Dir}}/keyring
run dir = {{.Dir}}/run
admin socket = {{.Dir}}/run/$name.$pid.asok
log file = {{.Dir}}/$name.log
pid file =
mon data avail warn = 1
mon data avail crit = 1
mon allow pool size one = true
mon warn on pool no redundancy = false
auth allow insecure global id reclaim = false
osd objectstore = memstore
memstore device bytes = {{.Bytes}}
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 1
osd pool default pg autoscale mode = off
osd crush chooseleaf type = 0
# A gateway that starts waits for those that were killed until their watches end.
osd client watch timeout = 1
rgw cache enabled = false
[mon.a]
mon data = {{.Dir}}/mon
[mgr.a]
mgr data = {{.Dir}}/mgr
[osd.0]
osd data = {{.Dir}}/osd
[client.admin]
rgw data = {{.Dir}}/rgw
`))

// capacity is how many bytes the storage daemon takes.
const capacity = 2 << 30

// Start starts a Ceph whose monitor listens on addr, "127.0.0.1:40001". Call Stop at the end.
func Start(ctx context.Context, addr string) (c *Cluster, err error) {
	dir, err := os.MkdirTemp("", "ceph")
	if err != nil {
		return nil, err
	}
	c = &Cluster{Dir: dir, Conf: filepath.Join(dir, "ceph.conf")}
	defer func() {
		if err != nil {
			c.Stop()
		}
	}()
	if err := c.prepare(addr); err != nil {
		return nil, err
	}
	if err := c.monitor(ctx, addr); err != nil {
		return nil, err
	}
	for _, add := range []func(context.Context) error{c.manager, c.storage} {
		if err := add(ctx); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *Cluster) prepare(addr string) error {
	for _, d := range []string{"run", "mon", "mgr", "osd", "rgw"} {
		if err := os.Mkdir(filepath.Join(c.Dir, d), 0o700); err != nil {
			return err
		}
	}
	var b bytes.Buffer
	err := conf.Execute(&b, map[string]any{"FSID": fsid(addr), "Monitor": addr, "Dir": c.Dir, "Bytes": int64(capacity)})
	if err != nil {
		return err
	}
	return os.WriteFile(c.Conf, b.Bytes(), 0o600)
}

// fsid is the id of the cluster of a monitor.
func fsid(addr string) string { return uuid.NewSHA1(uuid.NameSpaceURL, []byte(addr)).String() }

func (c *Cluster) monitor(ctx context.Context, addr string) error {
	keys, chart := filepath.Join(c.Dir, "keyring"), filepath.Join(c.Dir, "monmap")
	for _, args := range [][]string{
		{"ceph-authtool", "--create-keyring", keys, "--gen-key", "-n", "mon.", "--cap", "mon", "allow *"},
		{"ceph-authtool", keys, "--gen-key", "-n", "client.admin", "--cap", "mon", "allow *", "--cap", "osd", "allow *",
			"--cap", "mds", "allow *", "--cap", "mgr", "allow *"},
		{"monmaptool", "--create", "--fsid", fsid(addr), "--addv", "a", "[v2:" + addr + "]", chart},
		{"ceph-mon", "-i", "a", "--mkfs", "--monmap", chart, "--keyring", keys},
	} {
		if _, err := c.Run(ctx, args...); err != nil {
			return err
		}
	}
	if err := c.Daemon("ceph-mon", "-i", "a", "-f"); err != nil {
		return err
	}
	return c.Wait(ctx, "its monitor", "ceph", "--connect-timeout", "5", "mon", "stat")
}

func (c *Cluster) manager(ctx context.Context) error {
	if err := c.AddKey(ctx, "mgr.a", "mon", "allow profile mgr", "osd", "allow *", "mds", "allow *"); err != nil {
		return err
	}
	return c.Daemon("ceph-mgr", "-i", "a", "-f")
}

func (c *Cluster) storage(ctx context.Context) error {
	id := uuid.NewString()
	if _, err := c.Run(ctx, "ceph", "osd", "new", id); err != nil {
		return err
	}
	err := c.AddKey(ctx, "osd.0", "mon", "allow profile osd", "mgr", "allow profile osd", "osd", "allow *")
	if err != nil {
		return err
	}
	if _, err := c.Run(ctx, "ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", id); err != nil {
		return err
	}
	if err := c.Daemon("ceph-osd", "-i", "0", "-f"); err != nil {
		return err
	}
	return c.Wait(ctx, "its storage daemon", "sh", "-c", "ceph osd stat | grep -q '1 up'")
}

// AddKey makes a key for a daemon or client with capabilities, "mon", "allow r", ….
func (c *Cluster) AddKey(ctx context.Context, name string, caps ...string) error {
	key, err := c.Run(ctx, append([]string{"ceph", "auth", "get-or-create", name}, caps...)...)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(filepath.Join(c.Dir, "keyring"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString(key)
	return err
}

// Command is a command that uses this Ceph.
func (c *Cluster) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "CEPH_CONF="+c.Conf)
	return cmd
}

// Run runs a command and returns what it prints on its standard output.
func (c *Cluster) Run(ctx context.Context, args ...string) (string, error) {
	var out, bad bytes.Buffer
	cmd := c.Command(ctx, args...)
	cmd.Stdout, cmd.Stderr = &out, &bad
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, bad.String())
	}
	return out.String(), nil
}

// Wait runs a command until it succeeds, for a minute at most; what names what is waited for.
func (c *Cluster) Wait(ctx context.Context, what string, args ...string) error {
	for end := time.Now().Add(startWithin); ; time.Sleep(100 * time.Millisecond) {
		_, err := c.Run(ctx, args...)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("ceph: %s does not answer: %w\n%s", what, err, c.output())
		}
	}
}

// Daemon starts a program that runs until Stop.
func (c *Cluster) Daemon(args ...string) error {
	p, err := child.Start(c.Command(context.Background(), args...))
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.daemons = append(c.daemons, p)
	return nil
}

func (c *Cluster) output() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var b strings.Builder
	for _, p := range c.daemons {
		b.WriteString(p.Output())
	}
	return b.String()
}

// Stop kills all daemons, the last first, and removes their files.
func (c *Cluster) Stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := len(c.daemons) - 1; i >= 0; i-- {
		c.daemons[i].Kill()
	}
	_ = os.RemoveAll(c.Dir)
}
