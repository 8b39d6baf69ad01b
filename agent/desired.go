package agent

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
)

// desired is the state that the server wants of this host, as far as it was received.
type desired struct {
	runs    *runs
	disk    disk
	journal *journal.Journal
	shared  *sharedFolders
	resets  *resetter
	log     *slog.Logger
	woken   chan struct{} // a state came with a wake

	following sync.Mutex // serialises changes of what the host should run; taken before runs.mu

	seen   seen              // runs.mu guards it
	pushed *agentapi.Desired // came with a wake and is not applied yet; runs.mu guards it
}

// wake takes note that the server has a newer state, which may be in the message.
func (d *desired) wake(w agentapi.Wake) {
	d.runs.mu.Lock()
	behind := w.Revision > d.seen.Revision || !d.runs.known
	here := behind && w.Desired != nil && w.Desired.ControlEpoch == d.seen.ControlEpoch
	if here && (d.pushed == nil || w.Desired.Revision > d.pushed.Revision) {
		d.pushed = w.Desired
	}
	d.runs.mu.Unlock()
	switch {
	case here:
		poke(d.woken)
	case behind:
		poke(d.runs.report)
	}
}

// run applies desired states that came with a wake. If it cannot, the next report gets them.
func (d *desired) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.woken:
		}
		d.runs.mu.Lock()
		s := d.pushed
		d.pushed = nil
		d.runs.mu.Unlock()
		if s == nil {
			continue
		}
		if err := d.follow(*s); err != nil {
			d.log.Error("cannot apply the desired state of a wake", "revision", s.Revision, "err", err)
			poke(d.runs.report)
		}
	}
}

// follow applies a desired state, unless it is older than one applied before: the reply to a report may come after a
// wake with a newer state.
func (d *desired) follow(s agentapi.Desired) error {
	d.following.Lock()
	defer d.following.Unlock()
	d.runs.mu.Lock()
	now, known := d.seen, d.runs.known
	d.runs.mu.Unlock()
	if s.ControlEpoch != now.ControlEpoch || s.Revision < now.Revision || (known && s.Revision == now.Revision) {
		if s.ControlEpoch < now.ControlEpoch || s.Revision < now.Revision {
			d.log.Info("desired state is older than what was seen: nothing is changed", "revision", s.Revision, "seen",
				now.Revision,
				"control_epoch", s.ControlEpoch, "seen_epoch", now.ControlEpoch)
		}
		return nil
	}
	if err := d.disk.saveSeen(seen{s.ControlEpoch, s.Revision}); err != nil {
		return err
	}
	err := d.apply(s, known)
	d.shared.order(s.SharedErase) // after the runs: a folder that one has is not deleted
	d.resets.order(s.Requalify)
	return err
}

// apply makes the runs those of a desired state. known: this process has accepted a state before.
func (d *desired) apply(s agentapi.Desired, known bool) error {
	d.runs.mu.Lock()
	defer d.runs.mu.Unlock()
	d.seen, d.runs.known = seen{s.ControlEpoch, s.Revision}, true
	wanted := map[string]agentapi.LeaseSpec{}
	news := !known
	var failed []error
	for _, spec := range s.Leases {
		wanted[spec.Lease] = spec
		news = news || d.runs.find(spec.LeaseRef) == nil
		if err := d.want(spec); err != nil { // only this lease waits
			d.runs.known = false // the next report asks for the state again
			failed = append(failed, fmt.Errorf("lease %s: %w", spec.LeaseRef, err))
		}
	}
	d.keepKeys(s.Ending)
	if d.dismissRest(wanted) || news {
		poke(d.runs.report) // the server learns at once of new runs, and that this host knows what has ended
	}
	return errors.Join(failed...)
}

// followEpoch accepts a newer epoch of the control plane: its database was restored, and an admin has confirmed that
// its desired state now counts. Revisions start again, and usage of the last days is sent again.
func (d *desired) followEpoch(epoch int64) error {
	d.following.Lock()
	defer d.following.Unlock()
	d.runs.mu.Lock()
	old := d.seen
	d.runs.mu.Unlock()
	if epoch <= old.ControlEpoch {
		return nil
	}
	if old.ControlEpoch > 0 { // not the first contact
		d.log.Warn("the control plane begins a new epoch", "from", old.ControlEpoch, "to", epoch)
		// Done before the epoch is noted: an agent that dies in between repeats it, and a repetition does no harm.
		if err := d.journal.Replay(); err != nil {
			return err
		}
	}
	if err := d.disk.saveSeen(seen{ControlEpoch: epoch}); err != nil {
		return err
	}
	d.runs.mu.Lock()
	d.seen, d.runs.known = seen{ControlEpoch: epoch}, false
	d.runs.mu.Unlock()
	return nil
}

// want marks a run as wanted. A run that has ended here is only reported. Callers hold runs.mu.
func (d *desired) want(spec agentapi.LeaseSpec) error {
	t, ended, err := d.disk.tombstone(spec.Lease)
	if err != nil {
		return err
	}
	if l := d.runs.leases[spec.Lease]; ended && spec.Epoch <= t.Epoch &&
		(l == nil || !slices.ContainsFunc(l.runs, func(r *run) bool { return r.ref == spec.LeaseRef })) {
		rec := record{
			Spec:    withoutSecrets(spec),
			Gone:    true,
			Down:    true,
			Outcome: &outcome{State: agentapi.NodeStopped, Reason: agentapi.ReasonSuperseded},
		}
		if st := t.Status; st.Epoch == spec.Epoch {
			rec.Started = st.Started
			rec.Outcome = &outcome{State: st.State, Reason: st.Reason, Detail: st.Detail, ExitCode: st.ExitCode}
		}
		d.runs.add(spec.LeaseRef, rec)
		return nil
	}
	r := d.runs.find(spec.LeaseRef)
	if r == nil { // its first step writes the record
		r = d.runs.add(spec.LeaseRef, record{Spec: withoutSecrets(spec), RunUntilMS: spec.RunUntilMS})
	} else if spec.RunUntilMS > 0 {
		d.runs.extend(r, spec.RunUntilMS)
	}
	r.want, r.dismissed, r.superseded = &spec, false, false
	poke(d.runs.leases[spec.Lease].kick)
	return nil
}

// dismissRest ends every run that is not wanted, and reports whether there was one that had been wanted. Callers hold
// runs.mu.
func (d *desired) dismissRest(wanted map[string]agentapi.LeaseSpec) (some bool) {
	for _, l := range d.runs.leases {
		spec, other := wanted[l.id]
		for _, r := range l.runs {
			if other && r.ref == spec.LeaseRef {
				continue
			}
			some = some || !r.dismissed
			r.want, r.dismissed, r.superseded = nil, true, other && spec.Epoch > r.ref.Epoch
			if r.cancel != nil && r.rec.Outcome == nil {
				r.cancel() // of a present pull or preflight; ending steps go on
			}
		}
		poke(l.kick)
	}
	return some
}

// keepKeys keeps the keys with which runs that have ended store what their volumes have. Callers hold runs.mu.
func (d *desired) keepKeys(ending []agentapi.EndingLease) {
	for _, l := range ending {
		r := d.runs.find(l.LeaseRef)
		if r == nil {
			continue
		}
		r.keys = make(map[string][]byte, len(l.Keys))
		for _, k := range l.Keys {
			r.keys[k.Volume] = k.Key
		}
	}
}

// renewRelays stores the token that opens the relays from now on. Callers hold runs.mu.
func (d *desired) renewRelays(r *run, token string) {
	if token == "" || r.want == nil || r.want.Network.RelayToken == token {
		return
	}
	spec := *r.want // a copy, as views have the old one
	spec.Network.RelayToken = token
	r.want = &spec
	d.runs.kick(r.ref)
}

func (d *desired) revision() int64 {
	d.runs.mu.Lock()
	defer d.runs.mu.Unlock()
	if !d.runs.known {
		return 0
	}
	return d.seen.Revision
}
