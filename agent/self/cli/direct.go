package cli

import (
	"context"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/agent/net/link"
	"github.com/musterhq/muster/internal/agentapi"
)

const (
	// proofFile is where the last proof is stored, within the state directory.
	proofFile = "reachable.json"
	// proveEvery is the time between proofs that this host can be reached, after one that was made.
	proveEvery = 24 * time.Hour
	// proveAgain is the same after one that could not be made.
	proveAgain = 10 * time.Minute
)

// needsProof reports whether the host counts as reachable because of a public address. An operator who advertises
// private addresses only has said that peers reach those.
func (f hostFlags) needsProof() bool {
	for _, a := range f.advertise {
		if ip, err := netip.ParseAddr(a); err == nil && public(ip) {
			return true
		}
	}
	return len(f.advertise) == 0 && hasPublicAddress()
}

// direct reports whether peers anywhere reach this host without help, as far as that is proven. Overlays prove for
// themselves which peers they reach, and so does not depend on this whether they use the kernel's WireGuard.
func (h *hostDaemon) direct() bool {
	if !h.flags.reachable() || !h.flags.needsProof() {
		return h.flags.reachable()
	}
	p := h.proof.Load()
	return p != nil && (p.Direct || p.Relays == 0)
}

// loadProof reads the last proof, and makes one if there is none. A restart alone must not change how running leases
// reach their peers.
func (h *hostDaemon) loadProof(ctx context.Context) {
	if !h.flags.needsProof() {
		return
	}
	var p link.Proof
	b, err := os.ReadFile(filepath.Join(h.flags.state, proofFile))
	if err == nil && json.Unmarshal(b, &p) == nil {
		h.proof.Store(&p)
		return
	}
	h.prove(ctx)
}

// prove makes a proof and stores it. It reports whether one could be made.
func (h *hostDaemon) prove(ctx context.Context) bool {
	p, err := link.Prove(ctx, link.ReachConfig{URL: h.identity.Origin, CA: []byte(h.identity.StreamCA)})
	if err != nil {
		h.log.Info("whether other hosts reach this one could not be found out", "err", err)
		return false
	}
	if old := h.proof.Load(); old == nil || old.Direct != p.Direct {
		h.log.Info("whether other hosts reach this one has changed", "direct", p.Direct, "relays", p.Relays, "why", p.Why)
	}
	h.proof.Store(&p)
	b, err := json.Marshal(p)
	if err == nil {
		err = os.WriteFile(filepath.Join(h.flags.state, proofFile), b, 0o600)
	}
	if err != nil {
		h.log.Warn("the proof that other hosts reach this one is not stored", "err", err)
	}
	return true
}

// proveLoop repeats the proof each day. changed is called after each.
func (h *hostDaemon) proveLoop(ctx context.Context, changed func()) {
	if !h.flags.needsProof() {
		return
	}
	wait := time.Duration(0)
	if p := h.proof.Load(); p != nil {
		wait = min(max(0, proveEvery-time.Since(p.At)), proveEvery)
	}
	for {
		t := time.NewTimer(wait)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
		if wait = proveAgain; h.prove(ctx) {
			wait = proveEvery
			changed()
		}
	}
}

// reachProblem returns the problem of a host that has a public address at which nothing arrives; nil without one.
func (h *hostDaemon) reachProblem() *agentapi.Problem {
	p := h.proof.Load()
	if p == nil || p.Direct || p.Relays == 0 || !h.flags.needsProof() {
		return nil
	}
	return &agentapi.Problem{
		Code:     "not_reached",
		Severity: "warn",
		Cause: "Hosts in other networks do not reach this one, although it has a public address: clusters with them use " +
			"slower paths.",
		Evidence: p.Why,
		Fix: "Let UDP in to the ports of net.ipv4.ip_local_port_range, in the machine's firewall and the provider's. It is " +
			"tried again each day, and when the agent starts without a result (remove " + proofFile + " from its state).",
	}
}
