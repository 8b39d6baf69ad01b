package devstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/fakeprofile"
	"github.com/musterhq/muster/internal/devstack/demoimage"
	"github.com/musterhq/muster/internal/devstack/registry"
)

// localHost is one of the machine's hosts: an agent with its own state folder and GPU profile.
type localHost struct {
	name    string
	dir     string
	profile string // file that configures its fake NVML library
	agent   process
}

func (s *Stack) localHost(i int) localHost {
	name := fmt.Sprintf("local-%d", i+1)
	dir := filepath.Join(s.cfg.Dir, "hosts", name)
	h := localHost{name: name, dir: dir, profile: filepath.Join(dir, "gpus.profile")}
	h.agent = process{name: "agent", dir: dir, cmd: func() *exec.Cmd {
		args := []string{"--guest", filepath.Join(s.cfg.Bin, "muster-guest"), "--allow-registry", s.registryAddr(),
			"--advertise", "127.0.0.1", "--any-store"} // as the server's BucketAnyAddress: the user may run a store here
		if s.cfg.ScratchGB > 0 {
			args = append(args, "--scratch-dir", h.scratch(), "--scratch-gb", strconv.FormatInt(s.cfg.ScratchGB, 10))
		}
		return s.agent(h, "run", args...)
	}}
	return h
}

// scratch returns the folder for its nodes' scratches, which the host uses if it offers scratch.
func (h localHost) scratch() string { return filepath.Join(h.dir, "scratch") }

// agent returns a command of muster-agent for this host, with the fake NVML library in place of NVIDIA's.
func (s *Stack) agent(h localHost, command string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(s.cfg.Bin, "muster-agent"),
		append([]string{command, "--state", filepath.Join(h.dir, "state")}, args...)...)
	cmd.Dir = h.dir
	cmd.Env = append(os.Environ(),
		fakeprofile.Env+"="+h.profile,
		"MUSTER_NVML_LIBRARY="+filepath.Join(s.cfg.Bin, "fakenvml", "libnvidia-ml.so.1"),
	)
	return cmd
}

func (s *Stack) registryAddr() string { return fmt.Sprintf("127.0.0.1:%d", s.state.Ports.Registry) }

// startRegistry serves images from the state folder and pushes the demo image. The same program gives the same digest,
// so a restart changes nothing.
func (s *Stack) startRegistry(ctx context.Context) error {
	r, err := registry.Start(ctx, registry.Config{
		Dir:    filepath.Join(s.cfg.Dir, "registry"),
		Listen: s.registryAddr(),
		Log:    s.cfg.Log,
	})
	if err != nil {
		return err
	}
	s.onClose(func(context.Context) error { return r.Close() })
	s.Info.DemoImage, _, err = demoimage.Push(ctx, r.Addr(), filepath.Join(s.cfg.Bin, "muster-demo-job"))
	return err
}

// startHosts enrols the hosts that are not enrolled yet, starts or adopts their agents, and waits until all can be
// rented.
func (s *Stack) startHosts(ctx context.Context) error {
	s.release = s.server.ReleaseAll
	s.onClose(s.stopHosts)
	for i := range s.cfg.Hosts {
		if err := s.startHost(ctx, i); err != nil {
			return fmt.Errorf("host %d: %w", i+1, err)
		}
	}
	if err := s.waitForHosts(ctx); err != nil {
		return err
	}
	s.superviseHosts()
	return nil
}

// superviseHosts does what systemd does on a host: it restarts an agent that ended, after two seconds.
func (s *Stack) superviseHosts() {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(2 * time.Second)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			for i := range s.cfg.Hosts {
				h := s.localHost(i)
				if started, err := h.agent.start(); err != nil || started {
					s.cfg.Log.Warn("an agent had ended and was started again", "host", h.name, "err", err)
				}
			}
		}
	})
	s.onClose(func(context.Context) error { cancel(); wg.Wait(); return nil })
}

func (s *Stack) startHost(ctx context.Context, i int) error {
	h := s.localHost(i)
	if err := os.MkdirAll(h.dir, 0o700); err != nil {
		return err
	}
	if s.cfg.ScratchGB > 0 {
		if err := os.MkdirAll(h.scratch(), 0o700); err != nil {
			return err
		}
	}
	if _, err := os.Stat(h.profile); errors.Is(err, os.ErrNotExist) {
		p, err := fakeprofile.Host(s.cfg.GPU, s.cfg.GPUsPerHost, s.state.Secret+h.name)
		if err != nil {
			return err
		}
		if err := p.Save(h.profile); err != nil {
			return err
		}
	}
	if i >= len(s.state.Hosts) {
		known, err := s.enroll(ctx, h)
		if err != nil {
			return err
		}
		s.state.Hosts = append(s.state.Hosts, known)
		if err := s.state.save(); err != nil {
			return err
		}
	}
	started, err := h.agent.start()
	if err == nil && !started {
		s.cfg.Log.Info("agent runs already: adopted", "host", h.name)
	}
	return err
}

// enroll enrols a host like any operator: with a one-time token and the agent's own keys, then price and terms. It
// finds a host that was enrolled right before this program was killed by its name.
func (s *Stack) enroll(ctx context.Context, h localHost) (hostState, error) {
	known, err := s.enrolled(h)
	if err != nil {
		token, err := s.server.Enrollment(ctx, s.state.Accounts.OperatorToken, h.name)
		if err != nil {
			return known, err
		}
		certs, err := EnsureCertificates(filepath.Join(s.cfg.Dir, "tls"))
		if err != nil {
			return known, err
		}
		file := filepath.Join(h.dir, "token")
		if err := writeFile(file, []byte(token)); err != nil {
			return known, err
		}
		defer os.Remove(file)
		cmd := s.agent(h, "enroll", "--url", s.server.AgentURL(), "--ca", certs.CA, "--token-file", file, "--advertise",
			"127.0.0.1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return known, fmt.Errorf("enrol: %w: %s", err, lastLines(string(out), 3))
		}
		if known, err = s.enrolled(h); err != nil {
			return known, err
		}
	}
	return known, s.server.SetPrice(ctx, s.state.Accounts.OperatorToken, known.ID, s.cfg.Price)
}

// enrolled reads the agent's host id from its state.
func (s *Stack) enrolled(h localHost) (hostState, error) {
	b, err := os.ReadFile(filepath.Join(h.dir, "state", "identity.json"))
	if err != nil {
		return hostState{}, err
	}
	var who struct {
		Host string `json:"host"`
	}
	if err := json.Unmarshal(b, &who); err != nil {
		return hostState{}, err
	}
	return hostState{Name: h.name, ID: who.Host}, nil
}

// waitForHosts returns when every GPU of every local host is listed: free, or used by a workload that was adopted.
func (s *Stack) waitForHosts(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		ready := 0
		for _, known := range s.state.Hosts[:s.cfg.Hosts] {
			up, err := s.server.Connected(ctx, s.state.Accounts.OperatorToken, known.ID)
			if err != nil {
				return err
			}
			if up {
				ready++
			}
		}
		if ready == s.cfg.Hosts {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d of %d hosts came up; see %s", ready, s.cfg.Hosts,
				filepath.Join(s.cfg.Dir, "hosts", "*", "agent.log"))
		case <-tick.C:
		}
	}
}

// stopHosts stops all agents at once and removes what they have created on the machine.
func (s *Stack) stopHosts(ctx context.Context) error {
	errs := make([]error, len(s.state.Hosts))
	var wg sync.WaitGroup
	for i := range s.state.Hosts {
		h := s.localHost(i)
		wg.Go(func() { errs[i] = errors.Join(h.agent.stop(ctx, 10*time.Second), s.purge(ctx, h)) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// purge removes the host's containers, scratches, networks, overlays and firewall rules; its state stays. A host that
// was not enrolled yet when this program was killed has none.
func (s *Stack) purge(ctx context.Context, h localHost, args ...string) error {
	if _, err := s.enrolled(h); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if _, err := os.Stat(h.scratch()); err == nil {
		args = append(args, "--scratch-dir", h.scratch())
	}
	cmd := s.agent(h, "purge", args...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: purge: %w: %s", h.name, err, lastLines(string(out), 3))
	}
	return nil
}

// Down stops everything that runs with the state folder and removes the folder with all its data.
func Down(ctx context.Context, cfg Config) error {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, "state.json")); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is no state folder of muster dev", dir)
	}
	cfg.Dir = dir
	held, err := lock(dir)
	if err != nil {
		return fmt.Errorf("%w: stop it first", err)
	}
	defer held.Close()
	s := &Stack{cfg: cfg}
	if s.state, err = loadState(dir); err != nil {
		return err
	}
	var errs []error
	hosts, _ := filepath.Glob(filepath.Join(dir, "hosts", "local-*"))
	for i := range hosts {
		h := s.localHost(i)
		errs = append(errs, h.agent.stop(ctx, 10*time.Second), s.purge(ctx, h, "--images"))
	}
	pg, err := newPostgres(s.state.Postgres.Data, s.state.Postgres.Port, cfg.Log)
	if err == nil {
		err = pg.stop(ctx)
	}
	if err := errors.Join(append(errs, err)...); err != nil {
		return err
	}
	return errors.Join(os.RemoveAll(s.state.Postgres.Data), os.RemoveAll(dir))
}
