package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhq/muster/agent/machine/hostmem"
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

// memoryWatch ends leases that hold more of the host's memory than they were rented with, and keeps notes of it for the
// operator.
type memoryWatch struct {
	reader    hostmem.Reader
	runs      *runs
	disk      disk
	now       func() time.Time
	log       *slog.Logger
	inventory chan struct{} // the inventory, which has the notes, must be sent

	mu    sync.Mutex // guards notes
	notes memoryNotes
}

func newMemoryWatch(cfg Config, rs *runs, inventory chan struct{}) *memoryWatch {
	m := &memoryWatch{reader: cfg.Memory, runs: rs, disk: rs.disk, now: cfg.Now, log: cfg.Log, inventory: inventory}
	if err := readJSON(m.disk.memoryNotes(), &m.notes); err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.log.Warn("what was noted of the host's memory cannot be read", "err", err)
	}
	return m
}

func (d disk) memoryNotes() string { return filepath.Join(d.dir, "memory.json") }

// run ends a lease that takes the host's memory outside its limit, before the kernel ends a neighbour. See
// package hostmem.
func (m *memoryWatch) run(ctx context.Context) {
	suspect, looks := "", 0
	for pause(ctx, memoryEvery, nil) {
		h, err := m.reader.Host()
		if err != nil {
			m.log.Error("the host's memory cannot be read: nothing keeps leases from pinning all of it", "err", err)
			return
		}
		if !h.Short() {
			suspect, looks = "", 0
			continue
		}
		r, claim, err := m.overdrawn(h)
		if err != nil {
			m.log.Warn("the processes that hold the host's memory cannot be read", "err", err)
			continue
		}
		if claim.Container != suspect {
			suspect, looks = claim.Container, 0
		}
		switch looks++; {
		case r != nil && looks == 2: // two looks find the same
			m.end(r, claim.Detail(h))
		case r == nil && looks == shortLooks:
			what := fmt.Sprintf("%d MiB were available, and %d MiB should stay available", h.Available>>20, h.Floor()>>20)
			m.log.Warn("the host's memory is short, and no lease is to blame", "evidence", what)
			m.note(func(n *memoryNotes) { n.Short = memoryNote{m.now(), what} })
		}
	}
}

// overdrawn returns the running lease that exceeds its memory the most, if the host's is short; nil if none does.
func (m *memoryWatch) overdrawn(h hostmem.Host) (*run, hostmem.Claim, error) {
	var ids []string
	runs := map[string]*run{}
	claims := []hostmem.Claim{}
	m.runs.mu.Lock()
	for r := range m.runs.all() {
		if r.rec.Started && r.rec.WorkID != "" && r.rec.Outcome == nil && r.rec.Overdrawn == "" {
			ids, runs[r.rec.WorkID] = append(ids, r.rec.WorkID), r
			claims = append(claims, hostmem.Claim{Container: r.rec.WorkID, Limit: r.rec.Spec.RAMMB << 20,
				GPUs: len(r.rec.Spec.GPUs)})
		}
	}
	m.runs.mu.Unlock()
	holds, err := m.reader.Holds(ids)
	if err != nil {
		return nil, hostmem.Claim{}, err
	}
	for i := range claims {
		claims[i].Hold = holds[claims[i].Container]
	}
	worst, _ := hostmem.Blame(h, claims)
	return runs[worst.Container], worst, nil
}

// end ends a run because of the memory that it holds.
func (m *memoryWatch) end(r *run, why string) {
	if m.runs.overdraw(r, "a lease took the host's memory outside its limit and is ended", why) {
		m.note(func(n *memoryNotes) { n.Ended = memoryNote{m.now(), r.ref.Lease + ": " + why} })
	}
}

// note changes what the operator sees about the host's memory.
func (m *memoryWatch) note(f func(*memoryNotes)) {
	m.mu.Lock()
	f(&m.notes)
	err := writeJSON(m.disk.memoryNotes(), m.notes)
	m.mu.Unlock()
	if err != nil {
		m.log.Warn("that the host's memory was short cannot be noted", "err", err)
	}
	poke(m.inventory)
}

// problems returns what the operator should know about the host's memory.
func (m *memoryWatch) problems() []agentapi.Problem {
	m.mu.Lock()
	notes := m.notes
	m.mu.Unlock()
	var out []agentapi.Problem
	add := func(n memoryNote, code, cause, fix string) {
		if n.What == "" || m.now().Sub(n.At) > memoryNoteFor {
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
