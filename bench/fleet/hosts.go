package fleet

import (
	"context"
	"errors"
	"sync"
	"time"
)

// hostsPerProcess is the most hosts of one process: each needs a file descriptor, of which a process often has 20,000.
const hostsPerProcess = 10_000

// HostCalls is what a process of hosts does when it is called.
type HostCalls struct{ crowd *crowd }

// Connecting is hosts that are to connect to a server.
type Connecting struct {
	Members     []member
	Address, CA string
}

// Connect starts connecting hosts, without waiting for them.
func (h *HostCalls) Connect(a Connecting, _ *None) (err error) {
	h.crowd, err = connect(a.Members, a.Address, a.CA)
	return err
}

// Arrive waits until every host has connected, and its inventory and a report have been accepted.
func (h *HostCalls) Arrive(None, *None) error { return h.crowd.arrive(context.Background()) }

// Reporting is how many hosts report at a time, and for how long.
type Reporting struct {
	AtOnce int
	For    time.Duration
}

// Report lets hosts report, and returns how many reports were accepted.
func (h *HostCalls) Report(a Reporting, accepted *int64) (err error) {
	*accepted, err = h.crowd.reports(context.Background(), a.AtOnce, a.For)
	return err
}

// Idle lets the hosts idle for some time.
func (h *HostCalls) Idle(d time.Duration, _ *None) error {
	return h.crowd.idle(context.Background(), d)
}

// Troubles is what went wrong and was repeated.
type Troubles struct {
	Refused int64 // requests that were refused with a time to come back
	Late    int64 // requests without an answer
}

// Lease gives hosts leases, which they report from now on.
func (h *HostCalls) Lease(all Leases, _ *None) error {
	h.crowd.lease(all)
	return nil
}

// Run lets the hosts report for some time as often as agents.
func (h *HostCalls) Run(d time.Duration, _ *None) error {
	return h.crowd.run(context.Background(), d)
}

// Count returns what went wrong so far.
func (h *HostCalls) Count(_ None, t *Troubles) error {
	*t = Troubles{h.crowd.refusals.Load(), h.crowd.late.Load()}
	return nil
}

// Woken returns when the last wake of each host arrived, in Unix ns; 0: none did.
func (h *HostCalls) Woken(_ None, at *[]int64) error {
	for _, s := range h.crowd.hosts {
		*at = append(*at, s.woken.Load())
	}
	return nil
}

// Usage returns what the process has used, with its memory if that is wanted.
func (h *HostCalls) Usage(memory bool, u *Usage) error {
	*u = usage(memory)
	return nil
}

// fleet is the processes of the hosts.
type fleet []*process

// newFleet starts the processes of hosts, and their connections, without waiting for them.
func newFleet(ctx context.Context, members []member, address, ca string) (f fleet, err error) {
	for len(members) > 0 {
		p, err := spawn(ctx, argHosts)
		if err != nil {
			f.stop()
			return nil, err
		}
		f = append(f, p)
		n := min(hostsPerProcess, len(members))
		if _, err := call[None](p, "Connect", Connecting{members[:n], address, ca}); err != nil {
			f.stop()
			return nil, err
		}
		members = members[n:]
	}
	return f, nil
}

// each makes all processes do the same at the same time, and returns their results.
func each[R any](f fleet, what string, arg any) ([]R, error) {
	results, errs := make([]R, len(f)), make([]error, len(f))
	var all sync.WaitGroup
	for i, p := range f {
		all.Go(func() { results[i], errs[i] = call[R](p, what, arg) })
	}
	all.Wait()
	return results, errors.Join(errs...)
}

// usage returns what all processes have used.
func (f fleet) usage(memory bool) (sum Usage, err error) {
	all, err := each[Usage](f, "Usage", memory)
	for _, u := range all {
		sum.CPU, sum.Memory = sum.CPU+u.CPU, sum.Memory+u.Memory
	}
	return sum, err
}

// reports lets hosts report, so many at a time in each process, and returns how many reports were accepted.
func (f fleet) reports(atOnce int, d time.Duration) (sum int64, err error) {
	all, err := each[int64](f, "Report", Reporting{max(atOnce/len(f), 1), d})
	for _, n := range all {
		sum += n
	}
	return sum, err
}

func (f fleet) stop() {
	for _, p := range f {
		p.kill() // nothing is left to do: closing thousands of connections one by one takes long
	}
}
