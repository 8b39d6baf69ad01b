package agent

import (
	"context"
	"net/netip"
	"time"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/workload/container"
)

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
func (a *Agent) admit(ctx context.Context, r *run, c container.Container, mode string) error {
	a.mu.Lock()
	for _, l := range a.leases {
		for _, other := range l.runs {
			if other != r && other.egress.addr == c.IP {
				other.egress = egress{} // its guest is gone: the address belongs to this one now
			}
		}
	}
	r.egress = egress{c.IP, firewall.Egress(mode), true}
	a.mu.Unlock()
	if err := firewall.RefuseNames(ctx, c.NetNS()); err != nil {
		a.mu.Lock()
		r.egress.ours = false
		a.mu.Unlock()
		return err
	}
	return a.ensureFirewall(ctx)
}

// admitted reports whether this process has given a guest this egress. From then on firewallLoop maintains it.
func (a *Agent) admitted(r *run, c container.Container, mode string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return c.IP.IsValid() && r.egress == egress{c.IP, firewall.Egress(mode), true}
}

// expel removes a guest's egress, before its address is given to another guest.
func (a *Agent) expel(ctx context.Context, r *run) error {
	a.mu.Lock()
	r.egress = egress{}
	a.mu.Unlock()
	return a.ensureFirewall(ctx)
}

// firewallLoop keeps the firewall's table as the present runs require.
func (a *Agent) firewallLoop(ctx context.Context) {
	counted := time.Time{}
	for pause(ctx, a.cfg.FirewallEvery, nil) {
		a.mu.Lock()
		guests := false
		for _, l := range a.leases {
			for _, r := range l.runs {
				guests = guests || r.egress.addr.IsValid()
			}
		}
		a.mu.Unlock()
		if !guests && len(a.mounting()) == 0 && len(a.restoring()) == 0 {
			continue // the next start makes it
		}
		if err := a.ensureFirewall(ctx); err != nil && ctx.Err() == nil {
			a.log.Error("the firewall could not be looked at", "err", err)
		}
		if a.cfg.Now().Sub(counted) >= trafficEvery {
			counted = a.cfg.Now()
			a.countTraffic(ctx)
		}
	}
}

// ensureFirewall makes the agent's table match the egress of all runs.
func (a *Agent) ensureFirewall(ctx context.Context) error {
	a.admitting.Lock()
	defer a.admitting.Unlock()
	err := a.firewall.Ensure(ctx, firewall.Config{
		Host8:  container.Host8(a.cfg.Host),
		Leases: a.egresses(),
		Caps:   a.cfg.Caps,
	})
	a.ensureMounts(ctx)
	return err
}

// egresses returns what the guests are allowed, by address.
func (a *Agent) egresses() map[netip.Addr]firewall.Egress {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := map[netip.Addr]firewall.Egress{}
	for _, l := range a.leases {
		for _, r := range l.runs {
			if r.egress.addr.IsValid() {
				out[r.egress.addr] = r.egress.mode
			}
		}
	}
	return out
}
