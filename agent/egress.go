package agent

import (
	"context"
	"net/netip"

	"github.com/musterhq/muster/agent/container"
	"github.com/musterhq/muster/agent/firewall"
)

// egress is what the firewall lets a run's guest do.
type egress struct {
	addr netip.Addr
	mode firewall.Egress
}

// admit gives a guest the way out that its lease has.
func (a *Agent) admit(ctx context.Context, r *run, c container.Container, mode string) error {
	a.mu.Lock()
	r.egress = egress{c.IP, firewall.Egress(mode)}
	a.mu.Unlock()
	return a.ensureFirewall(ctx)
}

// expel takes it away, before its address is given to another.
func (a *Agent) expel(ctx context.Context, r *run) error {
	a.mu.Lock()
	r.egress = egress{}
	a.mu.Unlock()
	return a.ensureFirewall(ctx)
}

// ensureFirewall makes the agent's table what the runs are allowed.
func (a *Agent) ensureFirewall(ctx context.Context) error {
	a.firewall.Lock()
	defer a.firewall.Unlock()
	cfg := firewall.Config{Host8: container.Host8(a.cfg.Host), Leases: map[netip.Addr]firewall.Egress{}}
	a.mu.Lock()
	for _, l := range a.leases {
		for _, r := range l.runs {
			if r.egress.addr.IsValid() {
				cfg.Leases[r.egress.addr] = r.egress.mode
			}
		}
	}
	a.mu.Unlock()
	return firewall.Ensure(ctx, cfg)
}
