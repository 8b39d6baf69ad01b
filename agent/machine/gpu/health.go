package gpu

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// State is the state of a GPU's health, as in agentapi.HealthEvent.
type State string

const (
	Healthy     State = "healthy"
	Suspect     State = "suspect"     // keeps its present work, gets no new one
	Quarantined State = "quarantined" // unusable: what runs on it is not good
)

// worse reports whether s is a worse state than t.
func (s State) worse(t State) bool { return s.rank() > t.rank() }

func (s State) rank() int {
	switch s {
	case Suspect:
		return 1
	case Quarantined:
		return 2
	}
	return 0
}

// Kinds of evidence, as in agentapi.HealthEvent.
const (
	kindXid       = "xid"
	kindLost      = "lost"                  // NVML: the GPU is lost, or it vanished from the driver's list
	kindECC       = "ecc"                   // uncorrectable memory errors
	kindRemap     = "row_remap"             // failed, or waiting for a reset
	kindOffBus    = "off_bus"               // by the kernel's log, or the PCI device is gone
	kindAction    = "recovery_action"       // the driver requests a reset or a reboot
	kindHang      = "hang"                  // a call outlasted its deadline
	kindDriver    = "driver_error"          // an answer that no healthy GPU gives
	kindMemory    = "memory_held"           // a lease has ended, and its memory on the GPU is not free
	kindSwitch    = "nvswitch"              // a fatal error of a switch that connects it
	kindFabric    = "nvswitch_registration" // it is not registered with the switches, and others are
	kindCheck     = "cuda_check"            // it does not compute: see package gpucheck
	kindRecovered = "recovered"             // healthy again
	kindDegraded  = "degraded"              // slower than it could be; the state stays as it is
	kindRestored  = "restored"              // no longer degraded
)

// Evidence is one sign of a defect of a GPU.
type Evidence struct {
	Kind   string
	Xid    int
	Code   string // the vendor's own name of what happened; "": that of the Xid, if there is one
	Detail string
	Weight State // the state it puts a healthy GPU into; "" or Healthy: not about the GPU
	App    bool  // a program can cause it: such evidence never quarantines, however frequent
	// Contained: the GPU is fit for work as it is, though a reset is due.
	Contained bool
	Slower    string // why the GPU is slower than it could be, for people; "": it says nothing about that
}

// Numbers of the health rules.
const (
	strikesOut   = 3               // suspicions of the GPU itself within strikeMemory that together quarantine
	strikeMemory = 24 * time.Hour  //
	sameStrike   = 5 * time.Second // one event reported twice, by NVML and by the kernel's log, or in several ways
)

// ConditionEvidence returns the evidence in a GPU's report of its own defects; none means a healthy GPU. If the driver
// reports which action the defects need, its report decides: memory errors that were contained, or a row that waits to
// be remapped, leave the GPU fit for what runs on it. Drivers before the recovery action (about R555) report only the
// counts.
func ConditionEvidence(c wire.Condition) []Evidence {
	var out []Evidence
	add := func(kind string, weight State, format string, args ...any) {
		out = append(out, Evidence{Kind: kind, Weight: weight, Detail: fmt.Sprintf(format, args...)})
	}
	if c.ECCUncorrectable != nil && *c.ECCUncorrectable > 0 {
		weight := Quarantined
		if c.RecoveryAction != nil {
			weight = Suspect
		}
		add(kindECC, weight, "%d uncorrectable memory errors since the last reset", *c.ECCUncorrectable)
		out[0].Contained = c.RecoveryAction != nil && *c.RecoveryAction == wire.RecoverNone && !c.RemapPending &&
			!c.RemapFailure
	}
	if len(c.Uncorrectable) > 0 {
		var blocks []string
		for _, block := range slices.Sorted(maps.Keys(c.Uncorrectable)) {
			blocks = append(blocks, fmt.Sprintf("%d in %s", c.Uncorrectable[block], block))
		}
		add(kindECC, Quarantined, "uncorrectable errors since the driver was loaded: %s", strings.Join(blocks, ", "))
	}
	switch {
	case c.RemapFailure:
		add(kindRemap, Quarantined, "a memory row could not be remapped: the GPU must be replaced")
	case c.RemapPending:
		add(kindRemap, Suspect, "a memory row waits for a reset to be remapped")
	}
	if n := c.RetirePending + c.RetireFailed; n > 0 {
		add(kindRemap, Suspect, "bad pages of the memory are still in use: %d wait to be retired, %d could not be",
			c.RetirePending, c.RetireFailed)
	}
	if c.RecoveryAction != nil {
		switch action := *c.RecoveryAction; action {
		case wire.RecoverNone, wire.RecoverIMEX: // the latter is about other hosts: see imexProblems
		case wire.RecoverReset:
			add(kindAction, Quarantined, "the driver asks for: reset")
		case wire.RecoverReboot:
			add(kindAction, Quarantined, "the driver asks for: reboot")
		case wire.RecoverDrainP2P:
			add(kindAction, Suspect, "the driver asks for: drain of peer traffic")
		case wire.RecoverDrainAndReset: // present work may finish
			add(kindAction, Suspect, "the driver asks for: drain and reset")
		default:
			add(kindAction, Suspect, "the driver asks for recovery action %d", action)
		}
	}
	if c.Odd != nil {
		add(kindDriver, Suspect, "%s", c.Odd.Error())
	}
	return out
}

// CallEvidence returns the evidence in a refused or hung call about a GPU. ok is false if the GPU is not the cause of
// the failure.
func CallEvidence(err error) (Evidence, bool) {
	switch e := err.(type) {
	case *wire.Error:
		if e.Lookup {
			return Evidence{}, false
		}
		switch e.Code {
		case wire.CodeGPULost:
			return Evidence{Kind: kindLost, Weight: Quarantined, Detail: e.Error()}, true
		case wire.CodeResetRequired:
			return Evidence{Kind: kindAction, Weight: Quarantined, Detail: e.Error()}, true
		case wire.CodeUnknown:
			return Evidence{Kind: kindDriver, Weight: Suspect, Detail: e.Error()}, true
		}
	case *errHang:
		if e.gpu != "" {
			return Evidence{Kind: kindHang, Weight: Suspect, Detail: e.Error()}, true
		}
	}
	return Evidence{}, false
}

// Verdict is the health of one GPU: the part of a record that the rules read and write.
type Verdict struct {
	State  State     `json:"state"`
	Kind   string    `json:"kind,omitempty"` // of the evidence that led to State
	Reason string    `json:"reason,omitempty"`
	Since  time.Time `json:"since"`   // when State was entered
	BootID string    `json:"boot_id"` // boot in which State was entered
	// Last is the time of the last evidence; Strikes are the suspicions, newest last.
	Last    time.Time `json:"last,omitzero"`
	Strikes []Strike  `json:"strikes,omitempty"`
	// Standing holds, by kind, the defects that the GPU showed at the last look: they count once, not at each look.
	Standing map[string]string `json:"standing,omitempty"`
}

// Strike is one suspicion.
type Strike struct {
	At   time.Time `json:"at"`
	Kind string    `json:"kind"`
	Xid  int       `json:"xid,omitempty"`
	App  bool      `json:"app,omitempty"` // a program can cause it
}

// Accuse returns v after new evidence; news reports whether the evidence is worth an event. Accuse never improves a
// state.
func (v Verdict) Accuse(e Evidence, bootID string, now time.Time) (next Verdict, news bool) {
	if e.Weight.rank() == 0 {
		return v, false
	}
	for _, s := range slices.Backward(v.Strikes) {
		if s.Kind == e.Kind && s.Xid == e.Xid && now.Sub(s.At) < sameStrike {
			return v, false
		}
	}
	v.Last = now
	v.Strikes = slices.DeleteFunc(slices.Clone(v.Strikes), func(s Strike) bool { return now.Sub(s.At) > strikeMemory })
	known := slices.ContainsFunc(v.Strikes, func(s Strike) bool { return s.Kind == e.Kind && s.Xid == e.Xid })
	v.Strikes = append(v.Strikes, Strike{now, e.Kind, e.Xid, e.App})
	if len(v.Strikes) > maxStrikes {
		v.Strikes = v.Strikes[len(v.Strikes)-maxStrikes:]
	}
	weight, reason := e.Weight, e.Detail
	if n := v.incidents(); weight == Suspect && !e.App && n >= strikesOut {
		weight, reason = Quarantined, fmt.Sprintf("%s; suspicion %d within a day", e.Detail, n)
	}
	// A quarantine that ends with the registration gives way to one that does not.
	if weight.worse(v.State) || weight == Quarantined && v.Kind == kindFabric && e.Kind != kindFabric {
		v.State, v.Kind, v.Reason, v.Since, v.BootID = weight, e.Kind, reason, now, bootID
		return v, true
	}
	return v, !known
}

const maxStrikes = 50

// incidents returns how many suspicions of the GPU itself there were. One defect often shows in several ways at once,
// such as an error count, a row that waits to be remapped and a recovery action: that is one.
func (v Verdict) incidents() int {
	n := 0
	var last time.Time
	for _, s := range v.Strikes {
		if s.App || n > 0 && s.At.Sub(last) < sameStrike {
			continue
		}
		n, last = n+1, s.At
	}
	return n
}

// Look returns v after a whole look at the GPU. standing is every defect that the GPU shows now. New defects count as
// new evidence; contained ones do not count. Without defects, a suspicion ends with time, and a quarantine ends only
// after a reset: a new boot of the host, or a reset of the GPU (reset is true). Memory that is free again, a check
// that the GPU passes, or its registration with the NVSwitches ends only a state that the same has caused. A GPU that
// was reset, and now only lacks one of the latter two, waits for that. news is the evidence that is worth an event;
// recovered reports whether the GPU is healthy again.
func (v Verdict) Look(standing []Evidence, reset bool, bootID string, now time.Time,
	patience time.Duration) (next Verdict, news []Evidence, recovered bool) {
	before := v.Standing
	v.Standing = nil
	standing = slices.DeleteFunc(slices.Clone(standing), func(e Evidence) bool { return e.Contained })
	for _, e := range standing {
		if v.Standing == nil {
			v.Standing = map[string]string{}
		}
		v.Standing[e.Kind] = string(e.Weight)
		if before[e.Kind] == string(e.Weight) && !e.Weight.worse(v.State) {
			continue
		}
		var worth bool
		if v, worth = v.Accuse(e, bootID, now); worth {
			news = append(news, e)
		}
	}
	lacks := func(e Evidence) bool { return e.Kind == kindCheck || e.Kind == kindFabric && e.Weight == Suspect }
	switch {
	case reset && v.State != Healthy && len(standing) > 0 && !slices.ContainsFunc(standing, func(e Evidence) bool {
		return !lacks(e)
	}):
		v.State, v.Kind, v.Reason, v.Since, v.BootID = Suspect, standing[0].Kind, standing[0].Detail, now, bootID
		v.Strikes = nil
		return v, standing[:1], false
	case len(standing) > 0:
	case v.State == Suspect && (reset || v.Kind == kindMemory || v.Kind == kindCheck || v.Kind == kindFabric ||
		v.BootID != bootID || now.Sub(v.Last) >= patience),
		v.State == Quarantined && (reset || v.Kind == kindFabric || v.BootID != bootID):
		v.State, v.Kind, v.Reason, v.Since, v.BootID = Healthy, "", "", now, bootID
		if reset {
			v.Strikes = nil
		}
		return v, news, true
	}
	return v, news, false
}
