package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/money"
)

// engine is a Docker engine of a test's own, with live restore, so that it can be killed.
type engine struct {
	t      *testing.T
	dir    string
	link   string // its bridge
	docker *exec.Cmd
	gone   chan struct{} // of docker
}

// startEngine starts a containerd and a dockerd that share nothing with the machine's: not their data, not their
// sockets, not its bridge, no firewall rules.
func startEngine(t *testing.T) *engine {
	t.Helper()
	dir, err := os.MkdirTemp(ground, "engine-")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, dir: dir}
	e.bridge(t)
	containerd, gone := e.spawn("containerd", "--root", e.path("containerd"), "--state", e.path("cd"), "--address",
		e.path("cd.sock"),
		"--log-level", "warn")
	t.Cleanup(func() {
		end(e.docker, e.gone)
		end(containerd, gone)
		if t.Failed() {
			t.Logf("--- dockerd\n%s", tail(e.path("dockerd.log"), 20))
		}
		for _, l := range lines("sh", "-c", "awk '{print $2}' /proc/self/mounts | grep '^"+dir+"' | sort -r || true") {
			_ = syscall.Unmount(l, syscall.MNT_DETACH)
		}
	})
	eventually(t, "containerd answers", func() bool {
		return exec.Command("ctr", "--address", e.path("cd.sock"), "version").Run() == nil
	})
	e.start()
	return e
}

// bridge makes a bridge for containers that name no network. Without one, dockerd takes docker0 for its own; if it is
// configured to have no bridge, it deletes docker0, which may be another engine's.
func (e *engine) bridge(t *testing.T) {
	t.Helper()
	e.link = "mse" + strconv.Itoa(os.Getpid())
	if out, err := exec.Command("ip", "link", "add", e.link, "type", "bridge").CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", e.link, err, out)
	}
	t.Cleanup(func() {
		if out, err := exec.Command("ip", "link", "delete", e.link).CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", e.link, err, out)
		}
	})
}

func (e *engine) path(name string) string { return filepath.Join(e.dir, name) }

// host is what DOCKER_HOST says.
func (e *engine) host() string { return "DOCKER_HOST=unix://" + e.path("docker.sock") }

func (e *engine) spawn(name string, args ...string) (*exec.Cmd, chan struct{}) {
	e.t.Helper()
	log, err := os.OpenFile(e.path(name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	cmd, gone := exec.Command(name, args...), make(chan struct{})
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM} // should the test be killed
	if err := startChild(cmd, func(error) { close(gone) }); err != nil {
		e.t.Fatal(err)
	}
	return cmd, gone
}

// start starts dockerd and returns once it answers.
func (e *engine) start() {
	e.t.Helper()
	_ = os.Remove(e.path("docker.pid")) // of one that was killed: its number may be another process's by now
	e.docker, e.gone = e.spawn("dockerd", "--containerd", e.path("cd.sock"), "-H", "unix://"+e.path("docker.sock"),
		"--data-root", e.path("data"),
		"--exec-root", e.path("exec"), "--pidfile", e.path("docker.pid"), "--live-restore", "--bridge", e.link,
		"--iptables=false", "--ip6tables=false")
	until(e.t, "dockerd answers", func() error {
		select {
		case <-e.gone:
			e.t.Fatalf("dockerd ended:\n%s", tail(e.path("dockerd.log"), 20))
		default:
		}
		cmd := exec.Command("docker", "version")
		cmd.Env = append(os.Environ(), e.host())
		return cmd.Run()
	})
}

// kill ends dockerd at once; containers go on.
func (e *engine) kill() {
	_ = e.docker.Process.Kill()
	<-e.gone
}

func end(cmd *exec.Cmd, gone chan struct{}) {
	if cmd == nil {
		return
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-gone:
	case <-time.After(30 * time.Second):
		_ = cmd.Process.Kill()
		<-gone
	}
}

// A Docker engine with live restore is killed under a cluster that runs and one that starts: neither notices.
func TestTheEngineIsKilled(t *testing.T) {
	t.Parallel()
	e := startEngine(t)
	p := ownIn(t, []string{e.host()})
	r := p.renter(t, 20*money.Unit)
	running := r.run(t, untilEnough(p.spec(2, 1, "nap", "3600")))
	starting := r.rent(t, untilEnough(p.spec(2, 1, "nap", "3600")))
	r.awaitNode(t, starting, "starting", "joining", "ready", "running")
	e.kill()
	e.start()
	var usages []client.Usage
	for _, c := range []client.Cluster{running, r.await(t, starting, client.Running)} {
		r.enough(t, c)
		usages = append(usages, r.napped(t, c))
	}
	r.owes(t, usages...)
	p.idle(t)
	p.check(t)
}

// napped waits for the end of a cluster that naps and checks that each rank napped once and that all of it is paid.
func (r *renter) napped(t *testing.T, c client.Cluster) client.Usage {
	t.Helper()
	c = r.await(t, c, client.Released)
	if c.Reason != "completed" || c.Epoch != 1 {
		t.Errorf("%s in epoch %d: %s\n%s", c.Reason, c.Epoch, c.Detail, r.timeline(t, c))
	}
	u := r.settle(t, c)
	r.paidFor(t, c, u)
	return u
}

// noting is how long after a command's start or end the machine may record it. The kernel reports both; under load the
// receiver may be late.
const noting = 3 * time.Second

// windowMillis is how long a cluster's closed windows are together; tailMillis is how long its processes could be
// billed after it was stopped.
const (
	windowMillis = `SELECT coalesce(sum(w.closed_ms - w.opened_ms), 0)::bigint FROM cluster_window w JOIN cluster c ON
		c.id = w.cluster_id
		WHERE c.id = $1 AND (c.stop_at IS NULL OR w.opened_ms < floor(extract(epoch FROM c.stop_at) * 1000))`
	tailMillis = `SELECT coalesce(sum(w.closed_ms - w.opened_ms), 0)::bigint FROM cluster_window w JOIN cluster c ON c.id
		= w.cluster_id
		WHERE c.id = $1 AND w.opened_ms >= floor(extract(epoch FROM c.stop_at) * 1000)`
)

// anchorsApart is by how much, in ms, the time anchors of one of the cluster's hosts differ that were in force from the
// opening of a window until the lease was gone: 0 unless one of them was issued meanwhile.
const anchorsApart = `SELECT coalesce(max(apart), 0)::bigint FROM (
	SELECT max(a.server_ms - a.boot_ms) - min(a.server_ms - a.boot_ms) AS apart
	FROM lease l JOIN cluster_window w ON w.cluster_id = l.cluster_id JOIN time_anchor a ON a.host_id = l.host_id
	WHERE l.cluster_id = $1 AND a.created_at <= coalesce(l.gone_at, a.created_at) AND a.number >= (
		SELECT coalesce(max(b.number), 1) FROM time_anchor b WHERE b.host_id = a.host_id AND b.boot_id = a.boot_id AND
		b.server_ms <= w.opened_ms)
	GROUP BY l.id, w.n, a.boot_id) x`

// clocks describes what a bill was made of, for a failure's message.
const clocks = `SELECT string_agg(line, E'\n') FROM (
	SELECT format('window %s: %s to %s, confirmed %s', n, opened_ms, closed_ms, confirmed_until_ms) AS line FROM
	cluster_window WHERE cluster_id = $1
	UNION ALL SELECT format('rank %s epoch %s segment %s: %s to %s, boot %s, anchor %s, final %s', l.rank, s.epoch, s.seq,
	s.start_ms, s.end_ms, s.boot_end_ms, s.anchor, s.final)
		FROM usage_segment s JOIN lease l ON l.id = s.lease_id WHERE l.cluster_id = $1
	UNION ALL SELECT format('rank %s anchor %s: boot %s is %s', l.rank, a.number, a.boot_ms, a.server_ms)
		FROM time_anchor a JOIN lease l ON l.host_id = a.host_id WHERE l.cluster_id = $1) x`

// asTheWindows checks that just the windows are billed, to the millisecond, but for what the hosts' time anchors
// differ, which it returns.
func (r *renter) asTheWindows(t *testing.T, c client.Cluster, u client.Usage) (apart int64) {
	t.Helper()
	windows, apart, tail := r.p.sql(t, windowMillis, c.ID), r.p.sql(t, anchorsApart, c.ID), r.p.sql(t, tailMillis, c.ID)
	if billed := int64(u.BillableSeconds); billed > windows+tail || billed < windows-apart {
		t.Errorf("%d ms are billed, the windows are %d ms, the anchors %d ms apart\n%s\n%s", billed, windows, apart,
			r.timeline(t, c), r.p.text(t, clocks, c.ID))
	}
	return apart
}

// paidFor compares what is billed with what the ranks say themselves of when they ran, and with the windows.
func (r *renter) paidFor(t *testing.T, c client.Cluster, u client.Usage) {
	t.Helper()
	var began, ended int64
	for rank := range c.Nodes {
		text := r.logs(t, c, rank)
		if r.p.ownEngine() && !strings.Contains(text, "ended") && strings.Count(text, "began") <= 1 {
			// A container that ends while its engine is down leaves its last output in a pipe that has no reader. Its run
			// is proven all the same.
			r.asTheWindows(t, c, u)
			return
		}
		if strings.Count(text, "began") != 1 || strings.Count(text, "ended") != 1 {
			t.Errorf("rank %d did not run just once:\n%s", rank, text)
			return
		}
		b, e := napOf(text)
		began, ended = max(began, b), max(ended, e)
	}
	windows := r.p.sql(t, windowMillis, c.ID)
	r.asTheWindows(t, c, u)
	off := time.Duration(windows-(ended-began)) * time.Millisecond
	t.Logf("%s: the windows are %s longer than the command ran", c.ID, off)
	// Less is billed where a rank was not proven up for a while, which its timeline shows.
	if story := r.timeline(t, c); off > noting || off < -noting && !strings.Contains(story, "node_lost") {
		t.Errorf("the ranks ran together for %d ms, %d are billed\n%s", ended-began, windows, story)
	}
}
