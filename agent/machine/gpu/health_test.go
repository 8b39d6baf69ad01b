package gpu

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

func TestXidEvidence(t *testing.T) {
	t.Parallel()
	for xid, want := range map[int]State{
		13:   Healthy,
		31:   Healthy,
		43:   Healthy,
		45:   Healthy,
		68:   Healthy,
		109:  Healthy,
		48:   Quarantined,
		79:   Quarantined,
		95:   Quarantined,
		119:  Quarantined,
		63:   Healthy,
		74:   Suspect,
		94:   Suspect,
		154:  Healthy,
		156:  Quarantined,
		999:  Suspect,
		4711: Suspect,
	} {
		if got := XidEvidence(xid); got.Weight != want {
			t.Errorf("Xid %d weighs %s, want %s", xid, got.Weight, want)
		}
	}
}

func TestConditionEvidence(t *testing.T) {
	t.Parallel()
	none, two := uint64(0), uint64(2)
	action := func(n int) *int { return &n }
	for name, test := range map[string]struct {
		condition wire.Condition
		want      map[string]State
	}{
		"well":          {wire.Condition{ECCUncorrectable: &none}, nil},
		"no values":     {wire.Condition{}, nil},
		"ECC":           {wire.Condition{ECCUncorrectable: &two}, map[string]State{kindECC: Quarantined}},
		"remap pending": {wire.Condition{RemapPending: true}, map[string]State{kindRemap: Suspect}},
		"remap failed": {wire.Condition{
			RemapPending: true,
			RemapFailure: true,
		}, map[string]State{kindRemap: Quarantined}},
		"reset": {wire.Condition{RecoveryAction: action(wire.RecoverReset)},
			map[string]State{kindAction: Quarantined}},
		"drain P2P": {wire.Condition{RecoveryAction: action(wire.RecoverDrainP2P)},
			map[string]State{kindAction: Suspect}},
		"action of tomorrow": {wire.Condition{RecoveryAction: action(17)}, map[string]State{kindAction: Suspect}},
		"odd answer":         {wire.Condition{Odd: &wire.Error{Code: 999}}, map[string]State{kindDriver: Suspect}},
		"several": {wire.Condition{
			ECCUncorrectable: &two,
			RecoveryAction:   action(wire.RecoverReboot),
		}, map[string]State{kindECC: Suspect, kindAction: Quarantined}},
		"contained ECC": {wire.Condition{
			ECCUncorrectable: &two,
			RecoveryAction:   action(wire.RecoverNone),
		}, map[string]State{kindECC: Suspect}},
		"drain and reset": {wire.Condition{RecoveryAction: action(wire.RecoverDrainAndReset)},
			map[string]State{kindAction: Suspect}},
	} {
		var got map[string]State
		for _, e := range ConditionEvidence(test.condition) {
			if got == nil {
				got = map[string]State{}
			}
			got[e.Kind] = e.Weight
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// One GPU's story, step by step.
func TestVerdict(t *testing.T) {
	t.Parallel()
	const patience = 10 * time.Minute
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	xid := func(n int) *Evidence { e := XidEvidence(n); return &e }
	type step struct {
		after    time.Duration
		accuse   *Evidence
		standing []Evidence // a look, when accuse is nil
		reset    bool
		boot     string // "" = the same
		state    State
		events   int // news or recoveries
	}
	pending, failed := Evidence{Kind: kindRemap, Weight: Suspect}, Evidence{Kind: kindRemap, Weight: Quarantined}
	for name, steps := range map[string][]step{
		"a suspicion passes with time": {
			{accuse: xid(166), state: Suspect, events: 1},
			{after: time.Minute, state: Suspect},
			{after: 8 * time.Minute, state: Suspect},
			{after: 2 * time.Minute, state: Healthy, events: 1},
			{after: time.Minute, state: Healthy},
		},
		"a new suspicion restarts the wait": {
			{accuse: xid(166), state: Suspect, events: 1},
			{after: 9 * time.Minute, accuse: xid(74), state: Suspect, events: 1},
			{after: 9 * time.Minute, state: Suspect},
			{after: time.Minute, state: Healthy, events: 1},
		},
		"a quarantine does not pass with time": {
			{accuse: xid(79), state: Quarantined, events: 1},
			{after: 24 * time.Hour, state: Quarantined},
			{after: 24 * time.Hour, standing: []Evidence{pending}, state: Quarantined, events: 1},
			{after: 24 * time.Hour, state: Quarantined},
		},
		"a reset and a clean look requalify": {
			{accuse: xid(79), state: Quarantined, events: 1},
			{reset: true, standing: []Evidence{failed}, state: Quarantined, events: 1},
			{reset: true, state: Healthy, events: 1},
		},
		"a new boot and a clean look requalify": {
			{accuse: xid(79), state: Quarantined, events: 1},
			{boot: "second", standing: []Evidence{failed}, state: Quarantined, events: 1},
			{boot: "second", state: Healthy, events: 1},
		},
		"three suspicions in a day quarantine": {
			{accuse: xid(166), state: Suspect, events: 1},
			{after: 11 * time.Minute, state: Healthy, events: 1},
			{after: 6 * time.Hour, accuse: xid(166), state: Suspect, events: 1},
			{after: 11 * time.Minute, state: Healthy, events: 1},
			{after: 6 * time.Hour, accuse: xid(74), state: Quarantined, events: 1},
		},
		"three suspicions over two days do not": {
			{accuse: xid(166), state: Suspect, events: 1},
			{after: 14 * time.Hour, state: Healthy, events: 1},
			{accuse: xid(166), state: Suspect, events: 1},
			{after: 14 * time.Hour, state: Healthy, events: 1},
			{accuse: xid(166), state: Suspect, events: 1},
		},
		"the same evidence twice in a row counts once": {
			{accuse: xid(166), state: Suspect, events: 1},
			{after: time.Second, accuse: xid(166), state: Suspect},
			{after: time.Second, accuse: xid(166), state: Suspect},
			{after: time.Second, accuse: xid(166), state: Suspect},
		},
		"a standing defect counts once, and holds": {
			{standing: []Evidence{pending}, state: Suspect, events: 1},
			{after: 20 * time.Minute, standing: []Evidence{pending}, state: Suspect},
			{after: 20 * time.Minute, standing: []Evidence{pending}, state: Suspect},
			{after: 20 * time.Minute, standing: []Evidence{failed}, state: Quarantined, events: 1},
		},
		"a suspicion does not better a quarantine": {
			{accuse: xid(95), state: Quarantined, events: 1},
			{after: time.Hour, accuse: xid(166), state: Quarantined, events: 1},
		},
		"an application's Xid is nothing": {
			{accuse: xid(31), state: Healthy},
		},
	} {
		v, now, boot := Verdict{State: Healthy, BootID: "first"}, begin, "first"
		for i, s := range steps {
			now = now.Add(s.after)
			if s.boot != "" {
				boot = s.boot
			}
			events := 0
			if s.accuse != nil {
				var news bool
				if v, news = v.Accuse(*s.accuse, boot, now); news {
					events++
				}
			} else {
				next, news, recovered := v.Look(s.standing, s.reset, boot, now, patience)
				v, events = next, len(news)
				if recovered {
					events++
				}
			}
			if v.State != s.state || events != s.events {
				t.Errorf("%s, step %d: %s with %d events, want %s with %d", name, i+1, v.State, events, s.state, s.events)
				break
			}
			if (v.State == Healthy) != (v.Reason == "") && s.accuse != nil {
				t.Errorf("%s, step %d: %s because %q", name, i+1, v.State, v.Reason)
			}
		}
	}
}

// A storm of Xids neither grows the record without bound nor floods the server.
func TestStorm(t *testing.T) {
	t.Parallel()
	v, now, events := Verdict{State: Healthy}, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), 0
	for range 5000 {
		now = now.Add(sameStrike)
		var news bool
		if v, news = v.Accuse(XidEvidence(74), "boot", now); news {
			events++
		}
	}
	if len(v.Strikes) > maxStrikes || events > 2 || v.State != Quarantined {
		t.Errorf("%d strikes, %d events, %s", len(v.Strikes), events, v.State)
	}
}
