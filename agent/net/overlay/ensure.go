package overlay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/musterhq/muster/internal/fault"
)

// Ensure starts the overlay of cfg and returns when its device is up. It adopts a running process that serves the same
// epoch and namespace; otherwise it kills the process that holds the folder's lock and starts a new one. It may be
// called again at any time, but not concurrently for one folder. Errors are Unavailable faults whose message names what
// failed.
func Ensure(ctx context.Context, cfg Config) (*Handle, error) {
	h, err := ensure(ctx, cfg)
	if err != nil {
		return nil, fault.New(fault.Unavailable, "the overlay does not stand: %v", err)
	}
	return h, nil
}

func ensure(ctx context.Context, cfg Config) (*Handle, error) {
	dir := folder(cfg.Dir)
	netns, err := os.Open(cfg.NetNS)
	if err != nil {
		return nil, fmt.Errorf("the guest has no network namespace: %w", err)
	}
	defer netns.Close()
	want := settings{
		Ref:       cfg.Ref,
		Address:   cfg.Address,
		CIDR:      cfg.CIDR,
		MTU:       cfg.MTU,
		Port:      cfg.Port,
		Userspace: cfg.Userspace,
		Rails:     strings.Join(cfg.Interfaces, ","),
	}
	if want.MTU == 0 {
		want.MTU = DefaultMTU
	}
	if want.NetNS, err = identify(netns); err != nil {
		return nil, err
	}
	if _, err := want.place(); err != nil {
		return nil, err
	}
	h := &Handle{dir: dir, advertise: cfg.Advertise, rails: cfg.Interfaces}
	patience := cfg.Patience
	if patience == 0 {
		patience = DefaultPatience
	}
	adopted, err := h.adopt(ctx, want, patience)
	if adopted || err != nil {
		return h, err
	}
	if err := killHolder(ctx, dir); err != nil {
		return nil, err
	}
	if err := writeJSON(filepath.Join(dir, configFile), want); err != nil {
		return nil, fmt.Errorf("write what the overlay should be: %w", err)
	}
	if err := start(ctx, cfg, netns); err != nil {
		return nil, err
	}
	a, err := call(ctx, dir, request{Op: "hello"})
	if err != nil {
		return nil, fmt.Errorf("the overlay process does not answer: %w", err)
	}
	h.hello = *a.Hello
	return h, nil
}

// adopt takes over a running process that serves exactly what cfg asks for. It returns false if there is no such
// process, or if the process does not answer in time. A process that holds the lock and has no socket yet is still
// starting, perhaps on behalf of an earlier agent. Cancelling ctx ends nothing.
func (h *Handle) adopt(ctx context.Context, want settings, patience time.Duration) (bool, error) {
	asking, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		a, err := call(asking, h.dir, request{Op: "hello"})
		if err == nil && a.Hello != nil {
			// A different configuration does not justify an interruption.
			want.Rails, want.Userspace = a.Hello.Rails, a.Hello.Userspace
			if a.Hello.settings != want {
				return false, nil
			}
			h.hello, h.adopted = *a.Hello, true
			return true, nil
		}
		if pid, err := holder(h.dir); err != nil || pid == 0 {
			return false, err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-asking.Done():
			return false, ctx.Err()
		}
	}
}

// start runs the process and waits until it is up or reports why not. If the wait is cut short, start kills the
// process, which could otherwise take the folder's lock after no caller looks for a holder any more. The process gets a
// session of its own and none of the agent's environment: it outlives the agent.
func start(ctx context.Context, cfg Config, netns *os.File) error {
	argv := cfg.Command
	if len(argv) == 0 {
		self, err := os.Executable()
		if err != nil {
			return err
		}
		argv = []string{self, "overlay"}
	}
	log, err := os.OpenFile(filepath.Join(folder(cfg.Dir), logFile), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	ready, signal, err := os.Pipe()
	if err != nil {
		return err
	}
	defer ready.Close()
	cmd := exec.Command(argv[0], append(argv[1:len(argv):len(argv)], cfg.Dir)...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{signal, netns} // readyFD, netnsFD
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	err = cmd.Start()
	signal.Close()
	if err != nil {
		return fmt.Errorf("start the overlay process: %w", err)
	}
	gone := make(chan struct{})
	go func() { // reaps the process if it ends before the agent does
		_ = cmd.Wait()
		close(gone)
	}()
	if err := readReady(ctx, ready); err != nil {
		_ = cmd.Process.Kill()
		<-gone
		return err
	}
	return nil
}

func readReady(ctx context.Context, ready *os.File) error {
	stop := context.AfterFunc(ctx, func() { ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var problem string
	err := json.NewDecoder(ready).Decode(&problem)
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("the overlay process ended at once; its log is in the lease folder")
	case err != nil:
		return errors.Join(fmt.Errorf("wait for the overlay process: %w", err), ctx.Err())
	case problem != "":
		return errors.New(problem)
	}
	return nil
}

// Stop ends the overlay process of a lease folder. It returns when the process is gone and its traffic counters are
// stored (see ReadTraffic). It is no error if nothing runs. The device disappears with the guest's namespace. The key
// stays: wiping the folder is up to the caller.
func Stop(ctx context.Context, dir string) error {
	if _, err := os.Stat(folder(dir)); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	lastNote(ctx, folder(dir))
	if err := killHolder(ctx, folder(dir)); err != nil {
		return fault.New(fault.Unavailable, "the overlay does not stop: %v", err)
	}
	return nil
}
