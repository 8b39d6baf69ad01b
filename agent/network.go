package agent

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/workload/container"
)

// network is what the firewall of the host allows the runs, and counts of them.
type network struct {
	host8 string
	caps  firewall.Caps
	every time.Duration // between looks at the firewall's table
	now   func() time.Time
	log   *slog.Logger
	runs  *runs

	mu     sync.Mutex // serialises changes of the firewall and of the state that it shall have; taken before runs.mu
	keeper firewall.Keeper
}

// egress is what the firewall allows a run's guest.
type egress struct {
	addr netip.Addr
	mode firewall.Egress
	ours bool // this process has put it into the firewall
}

// remembered returns the egress in a run's record. The first run that a new process looks at changes the table for all:
// runs that it has not looked at yet keep the egress that they had.
func remembered(rec record, boot string) egress {
	if !rec.GuestIP.IsValid() || rec.BootID != boot || rec.Down {
		return egress{}
	}
	return egress{addr: rec.GuestIP, mode: firewall.Egress(rec.Spec.Egress)}
}

// admit gives a guest the egress that its lease has, and nothing of Docker's own name server.
func (n *network) admit(ctx context.Context, r *run, c container.Container, mode string) error {
	n.runs.mu.Lock()
	for other := range n.runs.all() {
		if other != r && other.egress.addr == c.IP {
			other.egress = egress{} // its guest is gone: the address belongs to this one now
		}
	}
	r.egress = egress{c.IP, firewall.Egress(mode), true}
	n.runs.mu.Unlock()
	if err := firewall.RefuseNames(ctx, c.NetNS()); err != nil {
		n.runs.mu.Lock()
		r.egress.ours = false
		n.runs.mu.Unlock()
		return err
	}
	return n.ensure(ctx)
}

// admitted reports whether this process has given a guest this egress. From then on run maintains it.
func (n *network) admitted(r *run, c container.Container, mode string) bool {
	n.runs.mu.Lock()
	defer n.runs.mu.Unlock()
	return c.IP.IsValid() && r.egress == egress{c.IP, firewall.Egress(mode), true}
}

// expel removes a guest's egress, before its address is given to another guest.
func (n *network) expel(ctx context.Context, r *run) error {
	n.runs.mu.Lock()
	r.egress = egress{}
	n.runs.mu.Unlock()
	return n.ensure(ctx)
}

// run keeps the firewall's table as the present runs require.
func (n *network) run(ctx context.Context) {
	counted := time.Time{}
	for pause(ctx, n.every, nil) {
		n.runs.mu.Lock()
		guests := false
		for r := range n.runs.all() {
			guests = guests || r.egress.addr.IsValid()
		}
		n.runs.mu.Unlock()
		if !guests && len(n.mounting()) == 0 && len(n.restoring()) == 0 {
			continue // the next start makes it
		}
		if err := n.ensure(ctx); err != nil && ctx.Err() == nil {
			n.log.Error("the firewall could not be looked at", "err", err)
		}
		if n.now().Sub(counted) >= trafficEvery {
			counted = n.now()
			n.count(ctx)
		}
	}
}

// ensure makes the agent's table match the egress of all runs.
func (n *network) ensure(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	err := n.keeper.Ensure(ctx, firewall.Config{
		Host8:  n.host8,
		Leases: n.egresses(),
		Caps:   n.caps,
	})
	n.ensureMounts(ctx)
	return err
}

// egresses returns what the guests are allowed, by address.
func (n *network) egresses() map[netip.Addr]firewall.Egress {
	n.runs.mu.Lock()
	defer n.runs.mu.Unlock()
	out := map[netip.Addr]firewall.Egress{}
	for r := range n.runs.all() {
		if r.egress.addr.IsValid() {
			out[r.egress.addr] = r.egress.mode
		}
	}
	return out
}
