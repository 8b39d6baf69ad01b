// Package barrier is a workload's PID 1: it finds the renter's command in the image, waits until all ranks may start,
// and runs it.
//
// Invariants:
//   - Nothing of the renter's runs before this very epoch is released.
//   - A command that cannot run is reported before the barrier, so before anything is billed;
//     so are GPUs that are not there or do not compute.
//   - The kernel reports "started": the connection to the guest breaks when the command's program is in place.
//
// Which process stays PID 1. A program as PID 1 is special: signals that it has no handler for do nothing, so most jobs
// would ignore SIGTERM until they are killed, and orphans that it does not reap fill its process table. So the init
// stays, forwards signals and reaps, as tini does; what a script runs gets the signal and its time, too (endTree). A
// command that is an init itself (s6, systemd, runit: some refuse to run as anything else), or a script that executes
// one, is executed in the init's place instead, and is PID 1 with all its duties, as under plain Docker. tini and its
// like run below the init: they would end with their child.
package barrier

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/musterhq/muster/agent/machine/gpucheck"
	"github.com/musterhq/muster/agent/unixsock"
	"github.com/musterhq/muster/agent/workload/guest"
	"github.com/musterhq/muster/internal/agentapi"
)

// Init configures the start of one workload.
type Init struct {
	Ref     agentapi.LeaseRef
	NodeDir string           // guest.NodeDir
	JobDir  string           // guest.JobDir; "": no link to the host file
	Devices []string         // device nodes that must be there and can be opened: those of the node's GPUs
	GPUs    *gpucheck.Check  // check of the node's GPUs; nil: none
	Reduce  *gpucheck.Reduce // measurement of the fabric with the other nodes, after that; nil: none
	Command []string         // environment in exec's format
	Env     []string
	Stderr  io.Writer // the job's own log, which the renter reads
}

// Run returns the exit code. It does not return if the command takes this process's place.
func (i Init) Run() int {
	stopOnSignal()
	line, err := i.dial()
	if err != nil {
		return i.broken(err)
	}
	if err := openDevices(i.Devices); err != nil {
		return i.refuse(line, err)
	}
	if err := i.checkGPUs(); err != nil {
		return i.refuse(line, err)
	}
	program, err := Find(i.Command, i.Env)
	if err != nil {
		return i.refuse(line, err)
	}
	measured := i.measure()
	if measured.Fails() {
		return i.refuse(line, slowFabric{measured})
	}
	if err := line.report(guest.Workload{LeaseRef: i.Ref, State: guest.StateAtBarrier, NCCL: measured}); err != nil {
		return i.broken(err)
	}
	if err := line.noted(); err != nil {
		return i.broken(err)
	}
	if err := awaitOpen(i.NodeDir, i.Ref, line.fd()); err != nil {
		return i.broken(err)
	}
	if err := line.report(guest.Workload{LeaseRef: i.Ref, State: guest.StateReleasing}); err != nil {
		return i.broken(err)
	}
	if err := line.noted(); err != nil { // the guest has closed its socket: the command cannot report in the init's name
		return i.broken(err)
	}
	signal.Reset()
	i.linkHostfile()
	server := i.serveRanks()
	if program.init {
		err = program.replace(i.Env)
		return i.refuse(line, err)
	}
	code, err := program.supervise(i.Env, line.close, server)
	if err != nil {
		return i.refuse(line, err)
	}
	return code
}

// measure measures the fabric with NCCL, together with the cluster's other nodes; nil: nothing is to be measured.
func (i Init) measure() *agentapi.NCCL {
	if i.Reduce == nil {
		return nil
	}
	n := i.Reduce.Run(context.Background())
	return &n
}

// slowFabric is a fabric that does not do what it was rented for.
type slowFabric struct{ measured *agentapi.NCCL }

func (e slowFabric) Error() string { return "the RDMA network: " + e.measured.Detail }

// stopOnSignal ends a wait at the barrier as a signal would end any program: PID 1 has no default actions.
func stopOnSignal() {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGTERM, syscall.SIGINT)
	go func() {
		s := (<-c).(syscall.Signal)
		os.Exit(128 + int(s))
	}()
}

// serveRanks starts the injected binary next to the command, for launchers on other ranks, and returns its pid. A
// cluster of one node has no such server (0), and a node works without it.
func (i Init) serveRanks() (pid int) {
	if !i.several() {
		return 0
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return 0
	}
	defer null.Close()
	files := []uintptr{null.Fd(), null.Fd(), null.Fd()}
	pid, _ = syscall.ForkExec("/proc/self/exe", []string{guest.Binary, "rshd"}, &syscall.ProcAttr{
		Env:   i.Env,
		Files: files,
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	return pid
}

func (i Init) broken(err error) int {
	fmt.Fprintln(i.Stderr, "muster: the node could not start:", err)
	return guest.ExitBroken
}

func (i Init) refuse(l *line, err error) int {
	fmt.Fprintln(i.Stderr, "muster:", err)
	w := guest.Workload{
		LeaseRef: i.Ref,
		State:    guest.StateRefused,
		Reason:   agentapi.ReasonCommandNotFound,
		Detail:   err.Error(),
	}
	code := guest.ExitNotRunnable
	var missing NotFound
	var noDevice deviceError
	var slow slowFabric
	switch {
	case errors.As(err, &w.GPUCheck):
		w.Reason, code = agentapi.ReasonGPUFailed, guest.ExitBroken
	case errors.As(err, &slow):
		w.Reason, w.NCCL, code = agentapi.ReasonPreflightFailed, slow.measured, guest.ExitBroken
	case errors.Is(err, errNoCheck):
		w.Reason, code = agentapi.ReasonRuntimeFailed, guest.ExitBroken
	case errors.As(err, &missing):
		code = guest.ExitNotFound
	case errors.As(err, &noDevice):
		w.Reason, code = agentapi.ReasonGPUFailed, guest.ExitBroken
	}
	if err := l.report(w); err == nil {
		_ = l.noted() // the exit code reports it, too
	}
	return code
}

// line is the connection to the guest. Its descriptor is closed on exec.
type line struct{ f *os.File }

func (i Init) dial() (*line, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c, err := unixsock.Dial(ctx, filepath.Join(i.NodeDir, guest.InitSocket))
	if err != nil {
		return nil, fmt.Errorf("the guest does not answer: %w", err)
	}
	defer c.Close()
	f, err := c.File()
	if err != nil {
		return nil, err
	}
	return &line{f}, nil
}

func (l *line) report(w guest.Workload) error {
	return json.NewEncoder(l.f).Encode(w)
}

// noted waits until the guest has acted on the report.
func (l *line) noted() error {
	if _, err := l.f.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("the guest has ended: %w", err)
	}
	return nil
}

func (l *line) fd() int { return int(l.f.Fd()) }
func (l *line) close()  { l.f.Close() }
