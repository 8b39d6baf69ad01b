package snapd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/machine/hostinfo"
	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/line"
	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/agent/storage/checkpoint"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/internal/agentapi"
)

// Limits of a process. A volume of as many files and chunks as volume.Restore takes needs less than softMemory to be
// restored and about as much again to be written.
const (
	softMemory = 1 << 30    // bytes, which Go tries to keep to
	hardMemory = 2560 << 20 // bytes, which the kernel enforces: what a tenant stored costs that tenant's process
	processors = 2
	niceness   = 10
	// oomScore takes back the protection that the process inherits from the agent: when memory is short, the kernel ends
	// what takes the most of it, and no tenant's workload in its place.
	oomScore = "0"
)

// Main is the process. args are "FOLDER", or "thaw GROUP" for the one that thaws (volume.Guard); it ends with its
// standard input. It returns the exit code.
func Main(args []string) int {
	if len(args) == 2 && args[0] == "thaw" {
		return volume.Guard(args[1:], os.Stdin, os.Stdout)
	}
	fl := flag.NewFlagSet("snapd", flag.ContinueOnError)
	if err := fl.Parse(args); err != nil || fl.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: muster-agent snapd FOLDER")
		return 2
	}
	go func() { // the agent's end
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil)).With("process", "snapd")
	if err := run(fl.Arg(0), log); err != nil {
		log.Error("the process for volumes ends", "err", err)
		return 1
	}
	return 0
}

func run(dir string, log *slog.Logger) error {
	restrain(log)
	lock, err := os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil { // until the one before has ended
		return fmt.Errorf("wait for the process before: %w", err)
	}
	freezes := filepath.Join(dir, freezesDir)
	if err := volume.ThawAll(freezes); err != nil {
		log.Error("a node that was stopped for a cut may still be stopped", "err", err)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	d := &daemon{
		log: log, freezes: freezes, guard: []string{self, "snapd", "thaw"}, workers: map[key]*worker{},
		peers:  map[agentapi.LeaseRef]*peers.Server{},
		server: overSocket(filepath.Join(filepath.Dir(dir), serverSocket)), least: time.Second,
		lines: map[agentapi.LeaseRef]*line.Line{}, onLine: firewall.OnLine,
	}
	l, err := unixsock.Listen(filepath.Join(dir, controlSocket), 0o600)
	if err != nil {
		return err
	}
	return http.Serve(l, d.handler())
}

// restrain gives the process little priority and bounds what it takes. What the kernel refuses is logged: a snapshot
// that is not restrained is better than none.
func restrain(log *slog.Logger) {
	debug.SetMemoryLimit(softMemory)
	runtime.GOMAXPROCS(processors)
	if err := limit(hardMemory); err != nil {
		log.Error("the memory of the process for volumes is not limited", "err", err)
	}
	const whoProcess, classIdle = 1, 3 << 13 // IOPRIO_WHO_PROCESS, IOPRIO_CLASS_IDLE
	err := unix.Setpriority(unix.PRIO_PROCESS, 0, niceness)
	// New threads inherit both; those that already run are set one by one.
	tasks, terr := os.ReadDir("/proc/self/task")
	for _, t := range tasks {
		var tid int
		if _, serr := fmt.Sscan(t.Name(), &tid); serr == nil {
			_ = unix.Setpriority(unix.PRIO_PROCESS, tid, niceness)
			if _, _, e := unix.Syscall(unix.SYS_IOPRIO_SET, whoProcess, uintptr(tid), classIdle); e != 0 {
				terr = errors.Join(terr, e)
			}
		}
	}
	if err = errors.Join(err, terr); err != nil {
		log.Warn("the process for volumes keeps its priority", "err", err)
	}
}

// limit limits the memory that the process can take, and lets the kernel end it when memory is short.
func limit(bytes uint64) error {
	return errors.Join(unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: bytes, Max: bytes}),
		os.WriteFile("/proc/self/oom_score_adj", []byte(oomScore), 0))
}

// key names a volume of a run.
type key struct {
	ref    agentapi.LeaseRef
	volume string
}

type daemon struct {
	log     *slog.Logger
	freezes string
	guard   []string
	server  volume.Server
	onLine  func(netip.Addr) bool
	least   time.Duration

	mu      sync.Mutex
	workers map[key]*worker
	peers   map[agentapi.LeaseRef]*peers.Server // of the runs that restore
	lines   map[agentapi.LeaseRef]*line.Line    // of the runs that have workers
}

func (d *daemon) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /volumes", func(w http.ResponseWriter, r *http.Request) {
		var wanted []Attached
		if json.NewDecoder(r.Body).Decode(&wanted) != nil {
			http.Error(w, "not a list of volumes", http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(d.follow(wanted))
	})
	mux.HandleFunc("POST /checkpoints", func(w http.ResponseWriter, r *http.Request) {
		var c checkpoint.Request
		if json.NewDecoder(r.Body).Decode(&c) != nil {
			http.Error(w, "not a checkpoint", http.StatusBadRequest)
			return
		}
		_ = json.NewEncoder(w).Encode(d.checkpoint(r.Context(), c))
	})
	return mux
}

// follow attaches what is wanted, detaches what is not, and returns how everything is. What is detached is missing
// from the answer once nothing of it is open any more.
func (d *daemon) follow(wanted []Attached) []State {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []State{}
	keep := map[key]bool{}
	for _, a := range wanted {
		k := key{a.Ref, a.Mount.Volume}
		keep[k] = true
		d.updatePeers(a)
		l := d.lineOf(a)
		w := d.workers[k]
		if w == nil {
			w = newWorker(d, a, l)
			d.workers[k] = w
		}
		w.want(a)
		out = append(out, w.status())
	}
	for k, w := range d.workers {
		if keep[k] {
			continue
		}
		if w.end() {
			delete(d.workers, k)
			continue
		}
		out = append(out, w.status())
	}
	d.noteLines()
	for ref, s := range d.peers {
		if s.Idle() {
			s.Close()
			delete(d.peers, ref)
		}
	}
	slices.SortFunc(out, func(a, b State) int { return len(a.Volume) - len(b.Volume) })
	return out
}

// lineOf returns the line of a volume's run, with the limits that the run has now. Callers hold d.mu.
func (d *daemon) lineOf(a Attached) *line.Line {
	l := d.lines[a.Ref]
	if l == nil {
		l = line.Open(line.Config{File: a.Moved, Limits: a.Limits, OnLine: d.onLine})
		d.lines[a.Ref] = l
	}
	l.SetLimits(a.Limits)
	return l
}

// noteLines writes what the volumes of all runs have moved, and closes the lines of runs that have no workers any more.
// Callers hold d.mu.
func (d *daemon) noteLines() {
	used := map[agentapi.LeaseRef]bool{}
	for k := range d.workers {
		used[k.ref] = true
	}
	for ref, l := range d.lines {
		note := l.Note
		if !used[ref] {
			note = l.Close
			delete(d.lines, ref)
		}
		if err := note(); err != nil {
			d.log.Warn("the traffic of volumes is not counted", "lease", ref, "err", err)
		}
	}
}

// updatePeers passes a run's present ranks to its peer server, if it has one. Callers hold d.mu.
func (d *daemon) updatePeers(a Attached) {
	if s := d.peers[a.Ref]; s != nil && a.Peers != nil {
		s.Update(*a.Peers)
	}
}

// join begins to exchange packs of a volume with the other ranks of a run.
func (d *daemon) join(a Attached, keys peers.Signer) *peers.Group {
	d.mu.Lock()
	defer d.mu.Unlock()
	s := d.peers[a.Ref]
	if s == nil {
		s = peers.NewServer(*a.Peers, d.log.With("lease", a.Ref))
		d.peers[a.Ref] = s
	}
	return s.Join(a.Mount.Volume, keys, d.log.With("lease", a.Ref))
}

// checkpoint begins a checkpoint that is not known, and returns how far one is.
func (d *daemon) checkpoint(ctx context.Context, c checkpoint.Request) checkpoint.State {
	d.mu.Lock()
	w := d.workers[key{c.Ref, c.Volume}]
	d.mu.Unlock()
	if w == nil {
		return checkpoint.State{ID: c.ID, Stage: checkpoint.StageFailed, Code: checkpoint.CodeNotFound,
			Message: "the volume is not attached yet"}
	}
	return w.checkpoint(ctx, c)
}

// overSocket is the control plane through the agent.
func overSocket(path string) volume.Server {
	client := &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return unixsock.Dial(ctx, path) },
	}}
	return func(ctx context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
		err = post(ctx, client, "/volume", q, &reply)
		return reply, err
	}
}

// post sends v to a socket and reads the answer.
func post(ctx context.Context, client *http.Client, path string, v, answer any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://snapd"+path, bytes.NewReader(b))
	if err != nil {
		return err
	}
	res, err := client.Do(q)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 1<<10))
		return fmt.Errorf("%s: %s", res.Status, text)
	}
	return json.NewDecoder(res.Body).Decode(answer)
}

// bootMS is CLOCK_BOOTTIME; the agent converts it to the control plane's clock.
var bootMS = hostinfo.BootMS
