package overlay

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.zx2c4.com/wireguard/wgctrl/wgtypes"

	"github.com/musterhq/muster/agent/unixsock"
)

// These are the file descriptors that the process starts with.
const (
	readyFD = 3 // a pipe for one JSON line: "" when up, or why not
	netnsFD = 4 // the guest's network namespace
)

// Main is the overlay process, `muster-agent overlay <lease folder>`, which only Ensure starts. It serves until it is
// killed, its device disappears or its lease folder is gone, and returns the exit code.
func Main(args []string) int {
	ready := os.NewFile(readyFD, "ready")
	netns := os.NewFile(netnsFD, "netns")
	if len(args) != 1 || ready == nil || netns == nil {
		fmt.Fprintln(os.Stderr, "the overlay process is started by the agent")
		return 2
	}
	// Children must not inherit these two.
	syscall.CloseOnExec(readyFD)
	syscall.CloseOnExec(netnsFD)
	p := &process{dir: folder(args[0])}
	err := p.start(netns)
	text := ""
	if err != nil {
		text = err.Error()
	}
	_ = json.NewEncoder(ready).Encode(text) // the agent may be gone: its successor asks over the socket
	ready.Close()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return p.serve()
}

// process is one running overlay.
type process struct {
	dir    string
	lock   *lock
	netns  *os.File // namespace of the guest
	cfg    settings
	key    wgtypes.Key
	site   where // what tunnels are created from
	able   bool  // whether the kernel's WireGuard may be used
	tun    tunnel
	moved  map[wgtypes.Key]netip.AddrPort // the peers' addresses since the overlay moved to the kernel
	roster *roster
	usage  usageFile
	listen *net.UnixListener
	memory sync.Mutex // guards state and its file; held to replace tun, and to use it outside serve
	state  state
}

// start creates the tunnel and resumes the peers that a process of the same epoch left behind.
func (p *process) start(netns *os.File) (err error) {
	if p.lock, err = acquire(p.dir); err != nil {
		return err
	}
	p.netns = netns
	// The kernel should kill a tenant's process before this one. Setting it needs root; without it the process works too.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("-900"), 0)
	if err := readJSON(filepath.Join(p.dir, configFile), &p.cfg); err != nil {
		return fmt.Errorf("read what the agent asked for: %w", err)
	}
	if ns, err := identify(netns); err != nil || ns != p.cfg.NetNS {
		return errors.Join(errors.New("the guest's namespace is not the one asked for"), err)
	}
	if p.key, err = loadKey(p.dir); err != nil {
		return err
	}
	var former state
	if err := readJSON(filepath.Join(p.dir, stateFile), &former); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("read the former process's state: %w", err)
	}
	if former.Ref != p.cfg.Ref {
		former = state{}
	}
	if err := p.open(netns, former); err != nil {
		return err
	}
	p.listen, err = unixsock.Listen(filepath.Join(p.dir, socketFile), 0o600)
	return err
}

func (p *process) open(netns *os.File, former state) error {
	w, err := p.cfg.place()
	if err != nil {
		return err
	}
	w.ns, w.key, w.near = netns, p.key, nearness(p.cfg.Rails)
	p.site, p.able = w, !p.cfg.Userspace && wireGuard.there()
	p.state = former
	if p.cfg.Port != 0 {
		p.state.Port = p.cfg.Port
	}
	w = p.where()
	w.read = p.usage.open(p.dir).Read
	at := former.movedTo()
	t, err := p.first(w, at != nil)
	if err != nil {
		return err
	}
	if _, ok := t.(*kernel); !ok {
		at = nil
	}
	p.roster = newRoster(t, p.key.PublicKey())
	p.roster.near = w.near
	if err := p.roster.set(former.Peers, true, time.Now()); err != nil {
		return err
	}
	return p.take(t, at, time.Now())
}

// first opens the tunnel that an earlier process had, or else the one that finds paths.
func (p *process) first(w where, moved bool) (tunnel, error) {
	if p.able && moved {
		k, err := openKernel(w)
		if err == nil {
			return k, nil
		}
		fmt.Fprintln(os.Stderr, "the kernel's WireGuard is not used:", err)
	}
	return openUserspace(w)
}

func (p *process) remember() error {
	p.state.Ref, p.state.Port = p.cfg.Ref, p.tun.port()
	return writeJSON(filepath.Join(p.dir, stateFile), p.state)
}

// serve watches the peers and answers requests until the device disappears, SIGTERM arrives or the lease folder is
// gone. The last case ends a process whose agent was stopped while it started the process and whose lease was removed
// in the meantime: nothing knows of the process any more, so it removes its device itself.
func (p *process) serve() int {
	go p.accept()
	term := make(chan os.Signal, 1)
	signal.Notify(term, syscall.SIGTERM)
	watch := time.NewTimer(restful)
	defer watch.Stop()
	for {
		select {
		case <-p.roster.changed:
			watch.Reset(0)
		case now := <-watch.C:
			if p.lock.lost() {
				if err := takeDown(p.netns); err != nil {
					fmt.Fprintln(os.Stderr, "the lease folder is gone:", err)
				}
				return 0
			}
			if err := p.move(now); err != nil {
				fmt.Fprintln(os.Stderr, "change the overlay's tunnel:", err)
				return 1 // the agent starts another process
			}
			next, err := p.roster.tick(now)
			if err != nil {
				fmt.Fprintln(os.Stderr, "watching the peers:", err)
			}
			if err := p.usage.keep(p.tun, now); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			watch.Reset(next)
		case <-p.tun.done():
			fmt.Fprintln(os.Stderr, "the device died")
			return 1
		case <-term:
			if err := p.usage.note(p.tun); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
			return 0
		}
	}
}
