package start

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/devstack"
	"github.com/musterhq/muster/internal/money"
)

// stack is a running `muster dev` with two hosts, and its renter.
type stack struct {
	bin, dir string
	info     devstack.Info
	renter   *client.Client
	operator *client.Client
	cmd      *exec.Cmd
	ended    chan struct{}
}

// startLimit is how long it may take to come up, and to go down.
const startLimit = 3 * time.Minute

func begin(ctx context.Context, bin, dir string) (*stack, error) {
	s := &stack{bin: bin, dir: filepath.Join(dir, "stack"), ended: make(chan struct{})}
	log, err := os.Create(filepath.Join(dir, "dev.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	s.cmd = exec.Command(filepath.Join(bin, "muster"), "dev", "--state", s.dir, "--listen", "127.0.0.1:0")
	s.cmd.Stdout, s.cmd.Stderr = log, log
	// should we be killed, it ends in order
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("muster dev: %w", err)
	}
	go func() { _ = s.cmd.Wait(); close(s.ended) }()
	if err = s.await(ctx); err == nil {
		err = s.prepare(ctx)
	}
	if err != nil {
		said, _ := os.ReadFile(log.Name())
		_ = s.end()
		return nil, fmt.Errorf("%w\n%s", err, said)
	}
	return s, nil
}

// await waits until the platform is ready.
func (s *stack) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		b, err := os.ReadFile(filepath.Join(s.dir, "dev.json"))
		if err == nil && json.Unmarshal(b, &s.info) == nil && s.info.PID == s.cmd.Process.Pid {
			return nil
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-s.ended:
			return fmt.Errorf("muster dev ended")
		case <-ctx.Done():
			return fmt.Errorf("muster dev is not ready: %w", ctx.Err())
		}
	}
}

// prepare gives the renter money.
func (s *stack) prepare(ctx context.Context) (err error) {
	if s.renter, err = client.New(s.info.URL, s.info.RenterToken); err != nil {
		return err
	}
	if s.operator, err = client.New(s.info.URL, s.info.OperatorToken); err != nil {
		return err
	}
	top, err := s.renter.Billing.CreateTopUp(ctx, client.CreateTopUpRequest{Amount: (500 * money.Unit).String()})
	if err == nil && top.State != "succeeded" {
		err = fmt.Errorf("the top-up is %s", top.State)
	}
	return err
}

// end stops the platform in order and takes its folder away.
func (s *stack) end() error {
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-s.ended:
	case <-time.After(startLimit):
		_ = s.cmd.Process.Kill()
		<-s.ended
	}
	down := exec.Command(filepath.Join(s.bin, "muster"), "dev", "--down", s.dir)
	if out, err := down.CombinedOutput(); err != nil {
		return fmt.Errorf("muster dev --down: %w: %s", err, out)
	}
	return nil
}

// rented says when a cluster was accepted and when it was running, both since the request.
type rented struct{ accepted, running time.Duration }

// rent rents, waits until the cluster runs, and releases it.
func (s *stack) rent(ctx context.Context, name string, spec client.Spec) (out rented, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	spec.Name = name
	began := time.Now()
	c, err := s.renter.Clusters.Rent(ctx, spec)
	if err != nil {
		return out, err
	}
	out.accepted = time.Since(began)
	_, err = s.renter.Clusters.Wait(ctx, c.ID, client.Running, nil)
	out.running = time.Since(began)
	if _, end := s.renter.Clusters.Release(ctx, c.ID); err == nil {
		err = end
	}
	if err == nil {
		_, err = s.renter.Clusters.Wait(ctx, c.ID, client.Released, nil)
	}
	return out, err
}
