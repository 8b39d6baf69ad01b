// Package journal durably records on the host how long leases ran, which is what renters are billed by.
//
// Invariants: a segment is signed, written and synced to the disk before anything else reads it, and what was written
// never changes; the segments of one (lease, epoch, boot) abut and are numbered from 1 without gaps, also over restarts
// of the agent; a run ends at the last moment it was seen alive, never later; after a crash at any byte the journal
// opens and holds everything that was synced before. Segments are removed only when the server acknowledged them; the
// files that held them are kept for another week, for a server that lost its last days.
package journal

import (
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// Config configures a journal. Zero numbers mean the defaults.
type Config struct {
	Host   string // prefixed id, part of what is signed
	Key    ed25519.PrivateKey
	BootID string
	Now    func() time.Time // determines the age of files
	Log    *slog.Logger

	RotateBytes int64         // size in bytes at which a new file begins; default 4 MiB
	MaxBytes    int64         // size of all files above which the oldest are removed early; default 256 MiB
	Keep        time.Duration // how long files are kept after their last acknowledgement; default 7 days
}

// Journal is safe for concurrent use.
type Journal struct {
	dir string
	cfg Config

	mu   sync.Mutex
	s    state
	file *os.File
	num  int   // number of the current file
	size int64 // size of the current file
	err  error // the disk failed: nothing is durable any more
}

// Open reads the journal in dir, creates it if there is none, truncates a torn tail, and ends the runs of earlier boots
// when they were last seen alive.
func Open(dir string, cfg Config) (*Journal, error) {
	cfg.RotateBytes = or(cfg.RotateBytes, 4<<20)
	cfg.MaxBytes = or(cfg.MaxBytes, 256<<20)
	cfg.Keep = or(cfg.Keep, 7*24*time.Hour)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the journal's folder: %w", err)
	}
	j := &Journal{dir: dir, cfg: cfg}
	if err := j.recover(); err != nil {
		return nil, fmt.Errorf("journal %s: %w", dir, err)
	}
	if err := j.newBoot(); err != nil {
		return nil, fmt.Errorf("journal %s: %w", dir, err)
	}
	return j, nil
}

func or[T int64 | time.Duration](v, fallback T) T {
	if v == 0 {
		return fallback
	}
	return v
}

// newBoot ends what an earlier boot left open and makes the running boot the current one.
func (j *Journal) newBoot() error {
	for _, r := range j.s.Runs {
		if r.BootID != j.cfg.BootID && !r.Ended {
			if err := j.append(record{End: &endRecord{r.runKey, r.TickBoot}}); err != nil {
				return err
			}
		}
	}
	if j.s.Boot != j.cfg.BootID {
		j.s.Boot = j.cfg.BootID
		if err := j.rotate(); err != nil { // the checkpoint records the new boot
			return err
		}
	}
	return j.write(nil)
}

// SetAnchor records a time anchor of the running boot. It ignores anchors of other boots and known ones.
func (j *Journal) SetAnchor(a agentapi.Anchor) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if a.BootID != j.cfg.BootID || a.Number <= j.s.newestAnchor(a.BootID).Number {
		return nil
	}
	if err := j.append(record{Anchor: &a}); err != nil {
		return err
	}
	return j.write(nil)
}

// Anchor returns the newest anchor of the running boot; ok is false if there is none yet.
func (j *Journal) Anchor() (a agentapi.Anchor, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	a = j.s.newestAnchor(j.cfg.BootID)
	return a, a.Number > 0
}

// Start begins a run at bootMS. A known run continues: its start does not move.
func (j *Journal) Start(ref agentapi.LeaseRef, bootMS int64, counters map[string]int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.s.run(runKey{ref, j.cfg.BootID}) != nil {
		return nil
	}
	return j.append(record{Start: &startRecord{ref, j.cfg.BootID, bootMS, counters}})
}

// Tick records that runs were seen alive, all in one synced frame, and closes the segments that are full. It ignores
// runs that are unknown or have ended.
func (j *Journal) Tick(ticks []Tick) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	known := ticks[:0:0]
	for _, t := range ticks {
		if r := j.s.run(runKey{t.LeaseRef, j.cfg.BootID}); r != nil && !r.Ended {
			known = append(known, t)
		}
	}
	if len(known) > 0 {
		if err := j.append(record{Ticks: known}); err != nil {
			return err
		}
	}
	return j.write(nil)
}

// Cut closes the open segment of a run at its last tick, because something about the lease changed.
func (j *Journal) Cut(ref agentapi.LeaseRef) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.write(&ref)
}

// End closes a run at bootMS with its final segment. A second End changes nothing.
func (j *Journal) End(ref agentapi.LeaseRef, bootMS int64) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.s.run(runKey{ref, j.cfg.BootID})
	if r == nil || r.Ended {
		return nil
	}
	if err := j.append(record{End: &endRecord{r.runKey, bootMS}}); err != nil {
		return err
	}
	return j.write(nil)
}

// LastTick returns when a run of this boot was last seen alive; ok is false if the run is not open.
func (j *Journal) LastTick(ref agentapi.LeaseRef) (bootMS int64, ok bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := j.s.run(runKey{ref, j.cfg.BootID})
	if r == nil || r.Ended {
		return 0, false
	}
	return r.TickBoot, true
}

// Pending returns up to n segments that are not acknowledged, oldest first.
func (j *Journal) Pending(n int) []agentapi.Segment {
	j.mu.Lock()
	defer j.mu.Unlock()
	return append([]agentapi.Segment(nil), j.s.Pending[:min(n, len(j.s.Pending))]...)
}

// Report returns Pending with the host's signature over the list, as a report carries both; nil if there are too few
// segments to sign a list.
func (j *Journal) Report(n int) (segs []agentapi.Segment, signature []byte) {
	segs = j.Pending(n)
	return segs, agentapi.SignBatch(j.cfg.Host, segs, j.cfg.Key)
}

// Drained reports whether nothing of a lease epoch is open or waits for an acknowledgement.
func (j *Journal) Drained(ref agentapi.LeaseRef) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, r := range j.s.Runs {
		if r.LeaseRef == ref && !r.Closed {
			return false
		}
	}
	return !j.s.pendingOf(ref)
}

// Ack removes acknowledged segments. It also removes refused ones, and logs them, because they are money that the
// operator loses.
func (j *Journal) Ack(acks []agentapi.UsageAck) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, a := range acks {
		if a.Refused != "" {
			j.cfg.Log.Error("the server will never accept usage", "lease", a.LeaseRef, "boot", a.BootID, "through", a.Through,
				"reason", a.Refused)
		}
	}
	if len(acks) == 0 {
		return nil
	}
	return j.append(record{Acks: acks})
}

// Replay makes every segment that is still on the disk pending again: the control plane was restored from an older
// state, and ignores segments that it already knows.
func (j *Journal) Replay() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	type key struct {
		runKey
		seq int64
	}
	have := map[key]bool{}
	keyOf := func(s agentapi.Segment) key {
		return key{runKey{agentapi.LeaseRef{Lease: s.Lease, Epoch: s.Epoch}, s.BootID}, s.Seq}
	}
	for _, s := range j.s.Pending {
		have[keyOf(s)] = true
	}
	var again []agentapi.Segment
	add := func(s agentapi.Segment) {
		if !have[keyOf(s)] {
			have[keyOf(s)] = true
			again = append(again, s)
		}
	}
	err := j.eachArchived(func(rec record) {
		switch {
		case rec.Segment != nil:
			add(*rec.Segment)
		case rec.Checkpoint != nil:
			for _, s := range rec.Checkpoint.Pending {
				add(s)
			}
		}
	})
	if err != nil {
		return err
	}
	for _, s := range again {
		if err := j.append(record{Segment: &s}); err != nil {
			return err
		}
	}
	return nil
}

// write closes, signs and appends every segment that is due; cut names a run to be cut even if its segment is not full.
func (j *Journal) write(cut *agentapi.LeaseRef) error {
	for _, r := range append([]*run(nil), j.s.Runs...) {
		for {
			seg := r.next(j.s.Anchors, r.TickBoot, cut != nil && *cut == r.LeaseRef && r.BootID == j.cfg.BootID)
			if seg == nil {
				break
			}
			seg.Facts = r.facts(seg.BootEndMS)
			seg.Sign(j.cfg.Host, j.cfg.Key)
			if err := j.append(record{Segment: seg}); err != nil {
				return err
			}
		}
	}
	return j.tidy()
}

// append makes a record durable and then applies it.
func (j *Journal) append(rec record) error {
	if j.err != nil {
		return j.err
	}
	b, err := json.Marshal(rec)
	if err != nil {
		return fmt.Errorf("encode a journal record: %w", err)
	}
	frame := appendFrame(nil, b)
	if _, err := j.file.Write(frame); err != nil {
		return j.broken(err)
	}
	if err := j.file.Sync(); err != nil {
		return j.broken(err)
	}
	j.size += int64(len(frame))
	j.s.apply(rec)
	return nil
}

// broken marks the journal as failed: after a failed write or sync the content of the disk is unknown, and the process
// must start again from it.
func (j *Journal) broken(err error) error {
	j.err = fmt.Errorf("the journal's disk failed, restart the agent: %w", err)
	return j.err
}

// Close closes the file. Runs stay open: another process continues them.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.err == nil {
		j.err = errors.New("the journal is closed")
	}
	return j.file.Close()
}

func (j *Journal) path(num int) string { return filepath.Join(j.dir, fmt.Sprintf("%08d.journal", num)) }
