package datakills

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/snapd"
	agentvolume "github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

// patience is how long a test waits for what has to come.
const patience = 3 * time.Minute

// world is a volume that a cluster writes, and all processes that keep it.
type world struct {
	*fleettest.World
	who     account.Principal
	vol     id.Volume
	cluster id.Cluster
	hosts   []id.Host
	v       *volume.Volumes // of the test itself

	listener *os.File
	server   serverConfig
	agent    agentConfig
	attached snapd.Attached
	running  map[string]*child // server, agent
	writer   *child

	requested []id.Snapshot // in the order of the requests
	killed    map[string]int
	kills     int
	reads     int
	exact     int // snapshots that were read back and are exact
	deleted   int
}

// newWorld starts everything and attaches an empty volume.
func newWorld(t *testing.T) *world {
	t.Helper()
	url := dbtest.NewURL(t)
	d, err := db.Open(t.Context(), db.Config{URL: url, MaxConns: 4})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &world{World: fleettest.New(t, d), running: map[string]*child{}, killed: map[string]int{},
		server: serverConfig{url, t.TempDir(), "http://" + l.Addr().String()}}
	// The server inherits the socket, so that its address is the same in the next one.
	w.listener, err = l.(*net.TCPListener).File()
	w.Must(err)
	w.Must(l.Close())
	t.Cleanup(func() { w.listener.Close() })
	w.v, _, err = openVolumes(t.Context(), w.server)
	w.Must(err)
	w.who = w.SignUp("renter")
	operator := w.SignUp("operator")
	for range 2 {
		w.hosts = append(w.hosts, fleettest.Enroll(t, d, operator.Org, operator.User, 1).Host)
	}
	vol, _, err := w.v.Catalog.Create(t.Context(), w.who, volume.NewVolume{Name: "data", SizeGB: 1, Keep: volume.MaxKeep},
		idem.Request{})
	w.Must(err)
	w.vol = vol.ID
	w.attach(t)
	return w
}

// attach rents the volume, makes its file system, and starts the writer, the server and the agent.
func (w *world) attach(t *testing.T) {
	t.Helper()
	ref := w.rent(t, w.hosts[0])
	root := newRoot(t, ref, w.vol)
	w.agent = agentConfig{t.TempDir(), w.server.Origin, w.hosts[0]}
	w.running["server"] = w.start(t, "server")
	w.attached = snapd.Attached{Ref: ref, Mount: w.mount(t), Root: root}
	w.running["agent"] = w.start(t, "agent")
	w.want(t, func(*agentapi.Mount) {})
	w.eventually(t, "the volume is attached", func() bool {
		return w.count(t, "SELECT count(*) FROM data_session WHERE volume_id = $1", w.vol) == 1
	})
	w.writer = w.startWriter(t, scratch.Data(root))
	w.attached.PID = w.writer.cmd.Process.Pid
	w.want(t, func(*agentapi.Mount) {})
}

// rent gives the volume to a new cluster on a host, as cluster.Rent does.
func (w *world) rent(t *testing.T, host id.Host) agentapi.LeaseRef {
	t.Helper()
	cl, lease := fleettest.Lease(t, w.DB, host, w.who.Org)
	w.cluster = cl
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		b := &pgx.Batch{}
		c := volume.QueueClaims(b, w.who.Org, []volume.Mount{{Volume: w.vol, Mode: agentapi.MountRW, At: "mounts[0].volume"}})
		if err := tx.Send(ctx, b); err != nil {
			return err
		}
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		if err := c.Decide(now); err != nil {
			return err
		}
		b = &pgx.Batch{}
		c.QueueWrite(b, cl)
		return tx.Send(ctx, b)
	})
	return agentapi.LeaseRef{Lease: lease.String(), Epoch: 1}
}

// mount returns what a host gets about the volume, with its key.
func (w *world) mount(t *testing.T) agentapi.Mount {
	t.Helper()
	var domain id.DataDomain
	var sealed []byte
	w.Must(w.DB.Pool.QueryRow(t.Context(), `SELECT d.id, d.key_sealed FROM data_domain d JOIN volume v ON
		v.domain_id = d.id WHERE v.id = $1`, w.vol).Scan(&domain, &sealed))
	key, err := volume.OpenKey(w.Box(), domain, sealed)
	w.Must(err)
	return agentapi.Mount{Path: "/data", Volume: w.vol.String(), Name: "data", Mode: agentapi.MountRW, Key: key}
}

// newRoot is the file system of a volume, as long as the test.
func newRoot(t *testing.T, ref agentapi.LeaseRef, vol id.Volume) string {
	t.Helper()
	s := scratch.New(t.TempDir(), 0, "0badcafe")
	if err := s.MakeVolume(t.Context(), ref, vol.String(), 64<<20); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Sweep(func(agentapi.LeaseRef) bool { return false }); err != nil {
			t.Error(err)
		}
	})
	return s.VolumePath(ref, vol.String())
}

// child is a process of the test.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
}

func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait()
}

// start starts the server or the agent.
func (w *world) start(t *testing.T, part string) *child {
	t.Helper()
	what := any(w.server)
	if part == "agent" {
		what = w.agent
	}
	b, err := json.Marshal(what)
	w.Must(err)
	c := &child{cmd: exec.Command(os.Args[0])}
	c.cmd.Env = append(os.Environ(), process+"="+part, config+"="+string(b))
	c.cmd.Stderr = os.Stderr
	if part == "server" {
		c.cmd.ExtraFiles = []*os.File{w.listener}
	}
	c.in, err = c.cmd.StdinPipe()
	w.Must(err)
	w.Must(c.cmd.Start())
	t.Cleanup(func() {
		c.kill()
		w.eventually(t, "the end of the process for volumes", func() bool { return w.snapd(t) == 0 })
	})
	return c
}

// want changes how the volume should be attached, and sends that to the agent.
func (w *world) want(t *testing.T, change func(*agentapi.Mount)) {
	t.Helper()
	change(&w.attached.Mount)
	b, err := json.Marshal(w.attached)
	w.Must(err)
	if _, err := w.running["agent"].in.Write(append(b, '\n')); err != nil {
		t.Fatal(err)
	}
}

// kill kills a part. The server and the agent are restarted at once, as an init system does; the agent gets what should
// be attached again, and restarts the process for volumes itself. It reports whether there was a process to kill.
func (w *world) kill(t *testing.T, part string) bool {
	t.Helper()
	if part == "snapd" {
		pid := w.snapd(t)
		if pid == 0 || syscall.Kill(pid, syscall.SIGKILL) != nil {
			return false
		}
	} else {
		w.running[part].kill()
		time.Sleep(time.Duration(w.kills%4) * 50 * time.Millisecond)
		w.running[part] = w.start(t, part)
		if part == "agent" {
			w.want(t, func(*agentapi.Mount) {})
		}
	}
	w.killed[part]++
	w.kills++
	return true
}

// snapd returns the pid of the process for volumes; 0 if there is none.
func (w *world) snapd(t *testing.T) (pid int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	w.Must(err)
	for _, f := range all {
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), "\x00snapd\x00"+w.agent.Dir+"/") {
			pid, _ = strconv.Atoi(filepath.Base(filepath.Dir(f)))
		}
	}
	return pid
}

// startWriter starts the writer in a control group of its own, which a snapshot may stop.
func (w *world) startWriter(t *testing.T, dir string) *child {
	t.Helper()
	groups := "/sys/fs/cgroup/freezer"
	if _, err := os.Stat(groups); err != nil {
		groups = "/sys/fs/cgroup"
	}
	group := filepath.Join(groups, fmt.Sprintf("muster-datakills-%d", os.Getpid()))
	w.Must(os.Mkdir(group, 0o755))
	// The shell joins the group and becomes the writer.
	c := &child{cmd: exec.Command("sh", "-c", `echo $$ > "$0"/cgroup.procs && exec "$1"`, group, os.Args[0])}
	c.cmd.Env = append(os.Environ(), process+"=writer", config+"="+dir)
	c.cmd.Stderr = os.Stderr
	out, err := c.cmd.StdoutPipe()
	w.Must(err)
	w.Must(c.cmd.Start())
	t.Cleanup(func() {
		c.kill()
		w.eventually(t, "the end of a control group", func() bool { return os.Remove(group) == nil })
	})
	if _, err := out.Read(make([]byte, 6)); err != nil {
		t.Fatalf("the writer did not begin: %v", err)
	}
	return c
}

// writes returns a function that reports whether the writer has written since.
func (w *world) writes() func() bool {
	hot := filepath.Join(scratch.Data(w.attached.Root), hotName(0))
	before, err := os.ReadFile(hot)
	return func() bool {
		now, nowErr := os.ReadFile(hot)
		return err == nil && nowErr == nil && !bytes.Equal(before, now)
	}
}

func (w *world) eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// onAnotherHost loses the host, rents the volume on another one, and returns what that restores.
func (w *world) onAnotherHost(t *testing.T) map[string][]byte {
	t.Helper()
	w.running["agent"].kill()
	w.Exec("UPDATE cluster SET state = 'released', ended_at = clock_timestamp() WHERE id = $1", w.cluster)
	w.Exec("UPDATE lease SET ended_at = clock_timestamp() WHERE cluster_id = $1", w.cluster)
	w.Exec("UPDATE node SET state = 'lost' WHERE cluster_id = $1", w.cluster)
	ref := w.rent(t, w.hosts[1])
	root := newRoot(t, ref, w.vol)
	to := agentConfig{"", w.server.Origin, w.hosts[1]}
	v, err := agentvolume.Open(t.Context(), agentvolume.Config{Ref: ref, Mount: w.mount(t), Root: root, Server: to.send,
		HTTP: http.DefaultClient, BootMS: func() int64 { return time.Now().UnixMilli() }})
	w.Must(err)
	defer v.Close()
	w.Must(v.Restore(t.Context(), nil))
	files := map[string][]byte{}
	data := scratch.Data(root)
	w.Must(filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(data, path)
		if err == nil {
			files[name], err = os.ReadFile(path)
		}
		return err
	}))
	return files
}
