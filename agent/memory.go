package agent

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/agent/machine/hostmem"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// memoryEvery is the time between looks at the host's memory. Pinning a few GiB takes about a second.
const memoryEvery = 500 * time.Millisecond

// memoryNoteFor is how long the operator is shown that the host's memory became short.
const memoryNoteFor = 24 * time.Hour

// shortLooks is how many looks in a row must find memory short, with no lease to blame, before the operator is
// notified.
const shortLooks = 10

// memoryNotes are the last times that the host's memory was short, for the operator. They are stored in the state
// folder.
type memoryNotes struct {
	Ended memoryNote `json:"ended"` // a lease was ended for it
	Short memoryNote `json:"short"` // no lease was found to be the cause
}

type memoryNote struct {
	At   time.Time `json:"at,omitzero"`
	What string    `json:"what,omitempty"`
}

func (d disk) memoryNotes() string { return filepath.Join(d.dir, "memory.json") }

// memoryLoop ends a lease that takes the host's memory outside its limit, before the kernel ends a neighbour. See
// package hostmem.
func (a *Agent) memoryLoop(ctx context.Context) {
	if a.cfg.Simulated && a.cfg.Memory == (hostmem.Reader{}) {
		return // simulated GPUs pin nothing, and share the machine with programs that are not the agent's
	}
	suspect, looks := "", 0
	for pause(ctx, memoryEvery, nil) {
		h, err := a.cfg.Memory.Host()
		if err != nil {
			a.log.Error("the host's memory cannot be read: nothing keeps leases from pinning all of it", "err", err)
			return
		}
		if !h.Short() {
			suspect, looks = "", 0
			continue
		}
		r, claim, err := a.overdrawn(h)
		if err != nil {
			a.log.Warn("the processes that hold the host's memory cannot be read", "err", err)
			continue
		}
		if claim.Container != suspect {
			suspect, looks = claim.Container, 0
		}
		switch looks++; {
		case r != nil && looks == 2: // two looks find the same
			a.endOverdrawn(r, claim.Detail(h))
		case r == nil && looks == shortLooks:
			what := fmt.Sprintf("%d MiB were available, and %d MiB should stay available", h.Available>>20, h.Floor()>>20)
			a.log.Warn("the host's memory is short, and no lease is to blame", "evidence", what)
			a.noteMemory(func(n *memoryNotes) { n.Short = memoryNote{a.cfg.Now(), what} })
		}
	}
}

// overdrawn returns the running lease that exceeds its memory the most, if the host's is short; nil if none does.
func (a *Agent) overdrawn(h hostmem.Host) (*run, hostmem.Claim, error) {
	var ids []string
	runs := map[string]*run{}
	claims := []hostmem.Claim{}
	a.mu.Lock()
	for _, l := range a.leases {
		for _, r := range l.runs {
			if r.rec.Started && r.rec.WorkID != "" && r.rec.Outcome == nil && r.rec.Overdrawn == "" {
				ids, runs[r.rec.WorkID] = append(ids, r.rec.WorkID), r
				claims = append(claims, hostmem.Claim{Container: r.rec.WorkID, Limit: r.rec.Spec.RAMMB << 20,
					GPUs: len(r.rec.Spec.GPUs)})
			}
		}
	}
	a.mu.Unlock()
	holds, err := a.cfg.Memory.Holds(ids)
	if err != nil {
		return nil, hostmem.Claim{}, err
	}
	for i := range claims {
		claims[i].Hold = holds[claims[i].Container]
	}
	worst, _ := hostmem.Blame(h, claims)
	return runs[worst.Container], worst, nil
}

// endOverdrawn records that a run must end because of the memory that it holds; its worker kills it.
func (a *Agent) endOverdrawn(r *run, why string) {
	a.log.Warn("a lease took the host's memory outside its limit and is ended", "lease", r.ref, "detail", why)
	if err := a.change(r, func(rec *record) { rec.Overdrawn = why }); err != nil {
		a.log.Error("cannot write a lease's record", "lease", r.ref, "err", err)
		return
	}
	a.mu.Lock()
	a.kick(r.ref)
	a.mu.Unlock()
	a.noteMemory(func(n *memoryNotes) { n.Ended = memoryNote{a.cfg.Now(), r.ref.Lease + ": " + why} })
}

// noteMemory changes what the operator sees about the host's memory.
func (a *Agent) noteMemory(f func(*memoryNotes)) {
	a.mu.Lock()
	f(&a.memory)
	err := writeJSON(a.disk.memoryNotes(), a.memory)
	a.mu.Unlock()
	if err != nil {
		a.log.Warn("that the host's memory was short cannot be noted", "err", err)
	}
	poke(a.inventory)
}

// killOverdrawn ends a run's command at once: memory is short now. The run then ends as its command's own doing.
func (a *Agent) killOverdrawn(ctx context.Context, r *run) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	return a.cfg.Engine.Kill(ctx, r.ref, container.Work)
}

// memoryProblems returns what the operator should know about the host's memory.
func (a *Agent) memoryProblems() []agentapi.Problem {
	a.mu.Lock()
	notes := a.memory
	a.mu.Unlock()
	var out []agentapi.Problem
	add := func(n memoryNote, code, cause, fix string) {
		if n.What == "" || a.cfg.Now().Sub(n.At) > memoryNoteFor {
			return
		}
		out = append(out, agentapi.Problem{
			Code:     code,
			Severity: "warn",
			Cause:    fmt.Sprintf(cause, n.At.UTC().Format(time.DateTime)),
			Evidence: n.What,
			Fix:      fix,
		})
	}
	add(notes.Ended, "memory_overdrawn", "A lease took the host's memory outside its limit and was ended at %s UTC.",
		"Nothing: the renter gets the reason, and the other leases go on.")
	add(notes.Short, "memory_short", "The host was short of memory at %s UTC, and no lease held more than it was rented "+
		"with.",
		"Look for programs outside leases that use much memory. Memory that a program pins through the driver without "+
			"mapping it cannot be assigned to a lease.")
	return out
}
