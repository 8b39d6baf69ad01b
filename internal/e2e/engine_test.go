package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
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
	docker *exec.Cmd
	gone   chan struct{} // of docker
}

// startEngine starts a containerd and a dockerd that share nothing with the machine's: not their data, not their
// sockets, not the bridge, no firewall rules.
func startEngine(t *testing.T) *engine {
	t.Helper()
	dir, err := os.MkdirTemp(ground, "engine-")
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, dir: dir}
	containerd, gone := e.spawn("containerd", "--root", e.path("containerd"), "--state", e.path("cd"), "--address", e.path("cd.sock"),
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
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	go func() { _ = cmd.Wait(); close(gone) }()
	return cmd, gone
}

// start starts dockerd and returns once it answers.
func (e *engine) start() {
	e.t.Helper()
	e.docker, e.gone = e.spawn("dockerd", "--containerd", e.path("cd.sock"), "-H", "unix://"+e.path("docker.sock"), "--data-root", e.path("data"),
		"--exec-root", e.path("exec"), "--pidfile", e.path("docker.pid"), "--live-restore", "--bridge=none", "--iptables=false", "--ip6tables=false")
	eventually(e.t, "dockerd answers", func() bool {
		cmd := exec.Command("docker", "version")
		cmd.Env = append(os.Environ(), e.host())
		return cmd.Run() == nil
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
	running := r.run(t, p.spec(2, 1, "nap", "6"))
	starting := r.rent(t, p.spec(2, 1, "nap", "1"))
	r.awaitNode(t, starting, "starting", "joining", "ready")
	e.kill()
	e.start()
	var usages []client.Usage
	for _, c := range []client.Cluster{running, starting} {
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

// What the machine may take from a command's start or end to its being noted. The kernel says both; under load whoever
// hears it may be late.
const noting = 3 * time.Second

// windowMillis is how long a cluster's closed windows are together.
const windowMillis = `SELECT coalesce(sum(closed_ms - opened_ms), 0)::bigint FROM cluster_window WHERE cluster_id = $1`

// steppedMillis is how much the clocks' anchors moved time forward between segments that follow one another without a pause on
// their host's own clock: what lies between them is proved by nobody.
const steppedMillis = `SELECT coalesce(sum(gap), 0)::bigint FROM (
	SELECT s.start_ms - lag(s.end_ms) OVER w AS gap, s.boot_end_ms - (s.end_ms - s.start_ms) - lag(s.boot_end_ms) OVER w AS pause
	FROM usage_segment s JOIN lease l ON l.id = s.lease_id WHERE l.cluster_id = $1
	WINDOW w AS (PARTITION BY s.lease_id, s.epoch, s.boot_id ORDER BY s.seq)) x WHERE pause = 0 AND gap > 0`

// anchorError is by how much, in ms, a host may read the server's clock wrong: an anchor is as old as the message that
// brought it. A host that stops when it hears of a release may have signed for that much less than the window, never more.
const anchorError = 250

// asTheWindows checks that just the windows are billed, but for steps of the anchors, which it returns, and, where nobody but
// the renter ended the run, for what an anchor is off at its end.
func (r *renter) asTheWindows(t *testing.T, c client.Cluster, u client.Usage) (steps int64) {
	t.Helper()
	windows, steps := r.p.sql(t, windowMillis, c.ID), r.p.sql(t, steppedMillis, c.ID)
	least := windows - steps
	if c.Reason == "released_by_user" {
		least -= anchorError
	}
	seconds, err := u.BillableSeconds.Float64()
	if billed := int64(seconds*1000 + 0.5); err != nil || billed > windows || billed < least {
		t.Errorf("%d ms are billed, the windows are %d ms, the anchors' steps %d ms (%v)\n%s", billed, windows, steps, err, r.timeline(t, c))
	}
	return steps
}

// paidFor compares what is billed with what the ranks say themselves of when they ran, and with the windows.
func (r *renter) paidFor(t *testing.T, c client.Cluster, u client.Usage) {
	t.Helper()
	var began, ended int64
	for rank := range c.Nodes {
		text := r.logs(t, c, rank)
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
	// Less is billed where a rank was not proven up for a while, which its timeline tells.
	if story := r.timeline(t, c); off > noting || off < -noting && !strings.Contains(story, "node_lost") {
		t.Errorf("the ranks ran together for %d ms, %d are billed\n%s", ended-began, windows, story)
	}
}
