package volume

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// How often packs are looked for and read back, and how long one pass may take.
const (
	lookEvery = 7 * 24 * time.Hour   // a pack that neither a listing nor a commit has seen for so long is looked for
	readRound = 100 * 24 * time.Hour // all packs are read back once: 1 % of the stored bytes a day
	// What servers that did not run have left undone is made up for to this extent: the store is also needed for other
	// things.
	readArrears = time.Hour
	partTime    = 20 * time.Second // of each part of a pass
	readTime    = 2 * time.Minute  // of one pack
	partMost    = 500              // packs in one part
)

// What is done about a pack for which the store does not answer.
const (
	retryLeast    = 10 * time.Minute
	retryMost     = 24 * time.Hour // also of packs that are lost or damaged
	silenceNotice = time.Hour      // after which administrators are notified
	// A part of a pass ends after so many packs in a row: then the store is away. The next part goes on behind them.
	silentInARow = 5
)

// Locks of what one replica at a time does.
const (
	scrubLock = 7274035
	listLock  = 7274036
	meterLock = 7274037
)

// verdict is what is known of a pack after the store was queried.
type verdict int

const (
	whole   verdict = iota
	lost            // the store does not have it
	damaged         // the store has other bytes
	silent          // the store does not answer: it may have it or not
)

func (k verdict) String() string { return [...]string{"whole", "lost", "damaged", "silent"}[k] }

// expected is a pack that should be in the store.
type expected struct {
	domain id.DataDomain
	n      int64
	sum    []byte
	bytes  int64
}

// Scrubber checks that the store has the packs that it should have, as they were stored.
type Scrubber struct {
	d        *db.DB
	store    store.Store // nil: there is nothing to check
	log      *slog.Logger
	verifier *verifier
}

// Scrub looks for packs that were not seen in the store for a week, or that its last list lacks; tries those again for
// which it did not answer; and reads back 1 % of all stored bytes a day, packs that were not read for the longest time
// first. What is lost or damaged is named to the organisations whose snapshots need it and to administrators; the next
// commit that refers to it has to send its chunks again. Scrub returns how many packs it queried.
func (s *Scrubber) Scrub(ctx context.Context) (did int, err error) {
	if s.store == nil {
		return 0, nil
	}
	err = s.d.Alone(ctx, scrubLock, func(ctx context.Context) error {
		var errs []error
		for _, part := range []func(context.Context) (int, error){s.lookForPacks, s.retryPacks, s.readPacks} {
			n, err := part(ctx)
			did, errs = did+n, append(errs, err)
		}
		return errors.Join(errs...)
	})
	return did, err
}

// lookForPacks looks for packs that were not seen since the last whole list began, or for a week.
func (s *Scrubber) lookForPacks(ctx context.Context) (int, error) {
	c, err := s.d.Q.DataCheck(ctx)
	if err != nil {
		return 0, fmt.Errorf("state of the scrub: %w", err)
	}
	since := c.Now.Add(-lookEvery)
	if from := c.DataCheck.WholeFrom; from != nil && from.After(since) {
		since = *from
	}
	rows, err := s.d.Q.PacksToLookFor(ctx, &since, partMost)
	if err != nil {
		return 0, fmt.Errorf("packs to look for: %w", err)
	}
	p := s.newPart()
	for _, r := range rows {
		if p.over() {
			break
		}
		x := expected{r.DomainID, r.N, r.Sha256, r.Bytes}
		p.note(ctx, x, s.verifier.lookFor(ctx, x), s.seen)
	}
	return p.finish(ctx)
}

// retryPacks reads the packs again of which something was wrong.
func (s *Scrubber) retryPacks(ctx context.Context) (int, error) {
	rows, err := s.d.Q.PacksToRetry(ctx, partMost)
	if err != nil {
		return 0, fmt.Errorf("packs to try again: %w", err)
	}
	p := s.newPart()
	for _, r := range rows {
		if p.over() {
			break
		}
		x := expected{r.DomainID, r.N, r.Sha256, r.Bytes}
		p.note(ctx, x, s.readBack(ctx, x), s.wasRead)
	}
	return p.finish(ctx)
}

// readPacks reads back what is due since the pass before.
func (s *Scrubber) readPacks(ctx context.Context) (int, error) {
	c, err := s.d.Q.DataCheck(ctx)
	if err != nil {
		return 0, fmt.Errorf("state of the scrub: %w", err)
	}
	total, err := s.d.Q.StoredBytes(ctx)
	if err != nil {
		return 0, fmt.Errorf("stored bytes: %w", err)
	}
	credit := readCredit(c.DataCheck.ReadCredit, total, c.Now.Sub(c.DataCheck.ReadThrough))
	p := s.newPart()
	if credit > 0 {
		rows, err := s.d.Q.PacksToRead(ctx, partMost)
		if err != nil {
			return 0, fmt.Errorf("packs to read back: %w", err)
		}
		for _, r := range rows {
			if credit <= 0 || p.over() {
				break
			}
			x := expected{r.DomainID, r.N, r.Sha256, r.Bytes}
			p.note(ctx, x, s.readBack(ctx, x), s.wasRead)
			credit -= float64(r.Bytes)
		}
	}
	if err := s.d.Q.SetReadCredit(ctx, c.Now, credit); err != nil {
		return p.did, fmt.Errorf("note what was read back: %w", err)
	}
	return p.finish(ctx)
}

// readCredit returns how many bytes may be read back now, if before was left some time ago. A pack is read as long as
// that is above 0, and may bring it below: so packs of any size have their turn, and the mean is right.
func readCredit(before float64, total int64, passed time.Duration) float64 {
	due := func(d time.Duration) float64 { return float64(total) * (float64(d) / float64(readRound)) }
	return min(before+due(max(0, passed)), max(due(readArrears), 1))
}

// readBack reads a pack and compares all of it. Other bytes are read twice: they may be the line's fault.
func (s *Scrubber) readBack(ctx context.Context, x expected) verdict {
	got := s.readOnce(ctx, x)
	if got == damaged {
		got = s.readOnce(ctx, x)
	}
	if got != silent {
		return got
	}
	// A store that has fewer bytes fails in the middle of the answer, or refuses the range.
	if head := s.verifier.lookFor(ctx, x); head == lost || head == damaged {
		return head
	}
	return silent
}

func (s *Scrubber) readOnce(ctx context.Context, x expected) verdict {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	body, err := s.store.Read(ctx, store.Key(x.domain, x.n), 0, x.bytes+1)
	if errors.Is(err, store.ErrNotFound) {
		return lost
	}
	if err != nil {
		return silent
	}
	defer body.Close()
	h := sha256.New()
	n, err := io.Copy(h, io.LimitReader(body, x.bytes+1))
	switch {
	case err != nil:
		return silent
	case n != x.bytes || [32]byte(h.Sum(nil)) != [32]byte(x.sum):
		return damaged
	}
	return whole
}

// seen notes that the store has shown a pack.
func (s *Scrubber) seen(ctx context.Context, x expected) error {
	return s.d.Q.SetPacksVerified(ctx, x.domain, []int64{x.n})
}

// wasRead notes that the store has returned a pack as it was stored. One that was lost or damaged before is billed
// again from now on.
func (s *Scrubber) wasRead(ctx context.Context, x expected) error {
	if n, err := s.d.Q.SetPackRead(ctx, x.domain, x.n); n > 0 || err != nil {
		return err
	}
	return s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Q.LockDataDomain(ctx, x.domain); err != nil {
			return err
		}
		if n, err := tx.Q.SetPackFound(ctx, x.domain, x.n); n == 0 || err != nil {
			return err
		}
		return levelNow(ctx, tx, x.domain)
	})
}

// A part is the packs that one part of a pass queries.
type part struct {
	s      *Scrubber
	end    time.Time
	did    int
	row    int                                   // packs in a row without an answer
	silent int                                   // packs without an answer
	since  time.Time                             // since when the store does not answer for one of them
	flawed map[verdict]map[id.DataDomain][]int64 // packs that are lost or damaged
	errs   []error
}

func (s *Scrubber) newPart() *part {
	return &part{s: s, end: time.Now().Add(partTime), flawed: map[verdict]map[id.DataDomain][]int64{lost: {}, damaged: {}}}
}

// over reports whether the part has no time left, or the store is away.
func (p *part) over() bool {
	return time.Now().After(p.end) || p.row >= silentInARow || len(p.errs) > 0
}

// note stores what is known of a pack. Whatever it is, the pack is behind the others then.
func (p *part) note(ctx context.Context, x expected, k verdict, whenWhole func(context.Context, expected) error) {
	if err := ctx.Err(); err != nil { // it is not the store's silence that ended the query
		p.errs = append(p.errs, err)
		return
	}
	p.did++
	p.row++
	switch k {
	case silent:
		p.noteSilent(ctx, x)
		return
	case lost, damaged:
		p.flawed[k][x.domain] = append(p.flawed[k][x.domain], x.n)
	case whole:
		if err := whenWhole(ctx, x); err != nil {
			p.errs = append(p.errs, fmt.Errorf("note pack %d of %s: %w", x.n, x.domain, err))
		}
	}
	p.row = 0
}

func (p *part) noteSilent(ctx context.Context, x expected) {
	since, err := p.s.d.Q.SetPackSilent(ctx, dbq.SetPackSilentParams{
		DomainID: x.domain, N: x.n, LeastS: retryLeast.Seconds(), MostS: retryMost.Seconds(),
	})
	if err != nil {
		p.errs = append(p.errs, fmt.Errorf("note pack %d of %s: %w", x.n, x.domain, err))
		return
	}
	p.silent++
	for _, at := range since {
		if at != nil && (p.since.IsZero() || at.Before(p.since)) {
			p.since = *at
		}
	}
}

// finish names what was found.
func (p *part) finish(ctx context.Context) (int, error) {
	for k, byDomain := range p.flawed {
		for domain, ns := range byDomain {
			if err := p.s.flawed(ctx, domain, k, ns); err != nil {
				p.errs = append(p.errs, err)
			}
		}
	}
	if p.silent > 0 {
		p.s.log.Warn("the store does not answer for packs", "packs", p.silent, "since", p.since)
		if err := notifySilence(ctx, p.s.d, p.since); err != nil {
			p.errs = append(p.errs, err)
		}
	}
	return p.did, errors.Join(p.errs...)
}

// notifySilence notifies administrators of a store that has not answered for a pack for a long time, once a day.
func notifySilence(ctx context.Context, d *db.DB, since time.Time) error {
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil || now.Sub(since) < silenceNotice {
			return err
		}
		return notify.AddForAdmins(ctx, tx, notify.Notice{
			Key: "store_silent:" + now.UTC().Format(time.DateOnly), Severity: notify.Warn,
			Title: "The store of volumes does not answer",
			Body: "It has not answered for at least one pack since " + since.UTC().Format(time.DateTime) + " UTC. Nothing is " +
				"known to be lost, and it is tried again. muster admin store lists the packs.",
		})
	})
}
