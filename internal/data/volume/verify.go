package volume

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/slots"
)

const (
	// verifyTime is how long one commit looks for packs in the store. What it found is noted, so that the next try goes
	// on.
	verifyTime = 10 * time.Second
	// looksAtOnce is how many packs one commit looks for at the same time.
	looksAtOnce = 32
	// bigCommits is how many commits of more packs than that one server looks for at the same time, and bigCommitsPerOrg
	// how many of one organisation. Those after them are refused for a moment, so that they do not keep the workers from
	// what other volumes send, and an organisation that commits again and again does not keep the others from it.
	bigCommits       = 8
	bigCommitsPerOrg = 3
	// unseenMost is how many packs of one data domain a sweep looks for together.
	unseenMost = 1000
)

// verifier looks for packs in the store.
type verifier struct {
	d       *db.DB
	store   store.Store
	looking slots.Slots // commits of many packs that look for them
}

// verify looks in the store for the packs of a commit that no commit has found there yet.
func (v *verifier) verify(ctx context.Context, x dbq.DataSession, firsts, lasts []int64) error {
	rows, err := v.d.Q.UnverifiedPacks(ctx, dbq.UnverifiedPacksParams{
		Firsts: firsts, Lasts: lasts, DomainID: x.DomainID, SessionID: x.ID,
	})
	if err != nil {
		return fmt.Errorf("packs of %s: %w", x.ID, err)
	}
	if len(rows) == 0 {
		return nil
	}
	if len(rows) > looksAtOnce {
		org, err := v.d.Q.OrgOfDomain(ctx, x.DomainID)
		if err != nil {
			return fmt.Errorf("organisation of %s: %w", x.DomainID, err)
		}
		leave, err := v.looking.Take(ctx, org)
		if err != nil {
			return refused(agentapi.VolumeAway, "%d packs are not checked yet: send the commit again", len(rows))
		}
		defer leave()
	}
	packs := make([]expected, len(rows))
	for i, r := range rows {
		packs[i] = expected{x.DomainID, r.N, r.Sha256, r.Bytes}
	}
	found, missing, away := v.lookForAll(ctx, packs)
	if err := v.noteSeen(ctx, x.DomainID, found); err != nil {
		return fmt.Errorf("note packs of %s: %w", x.ID, err)
	}
	switch {
	case len(missing) > 0:
		e := refused(agentapi.VolumeMissing, "%d packs are not in the store", len(missing))
		e.Packs = missing[:min(len(missing), 1000)]
		return e
	case away:
		return refused(agentapi.VolumeAway, "the store does not answer")
	case len(found) < len(rows):
		return refused(agentapi.VolumeAway, "%d of %d packs are checked: send the commit again", len(found), len(rows))
	}
	return nil
}

// lookForAll looks for packs of one data domain for at most verifyTime, several at the same time, and returns those
// that the store has and has not. away: it did not answer for one.
func (v *verifier) lookForAll(ctx context.Context, packs []expected) (found, missing []int64, away bool) {
	ctx, cancel := context.WithTimeout(ctx, verifyTime)
	defer cancel()
	var mu sync.Mutex
	var g errgroup.Group
	g.SetLimit(looksAtOnce)
	for _, p := range packs {
		if ctx.Err() != nil {
			break
		}
		g.Go(func() error {
			got := v.lookFor(ctx, p)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case got == whole:
				found = append(found, p.n)
			case got == lost, got == damaged:
				missing = append(missing, p.n)
			case ctx.Err() == nil:
				away = true
				cancel()
			}
			return nil
		})
	}
	_ = g.Wait()
	slices.Sort(missing)
	return found, missing, away
}

// noteSeen notes packs that the store has shown. Those that no commit has named yet are billed from now on.
func (v *verifier) noteSeen(ctx context.Context, domain id.DataDomain, ns []int64) error {
	if len(ns) == 0 {
		return nil
	}
	return v.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Q.LockDataDomain(ctx, domain); err != nil {
			return fmt.Errorf("lock %s: %w", domain, err)
		}
		if err := tx.Q.SetPacksVerified(ctx, domain, ns); err != nil {
			return fmt.Errorf("note packs of %s: %w", domain, err)
		}
		return levelNow(ctx, tx, domain)
	})
}

// seeUploads looks for packs that were granted and that no commit has named yet, so that they are billed from now on.
func (v *verifier) seeUploads(ctx context.Context, domain id.DataDomain) error {
	for after := int64(0); ; {
		rows, err := v.d.Q.UnseenPacks(ctx, domain, after, unseenMost)
		if err != nil || len(rows) == 0 {
			return err
		}
		packs := make([]expected, len(rows))
		for i, r := range rows {
			packs[i] = expected{domain, r.N, r.Sha256, r.Bytes}
		}
		found, _, away := v.lookForAll(ctx, packs)
		if err := v.noteSeen(ctx, domain, found); err != nil {
			return err
		}
		if away {
			return errors.New("the store does not answer")
		}
		after = rows[len(rows)-1].N
	}
}

// matches reports whether the store has what was granted. A store that returns no checksums has checked them at the
// PUT, which its probe made sure of.
func matches(o store.Object, sum []byte, bytes int64) bool {
	return o.Bytes == bytes && (o.Sum == [32]byte{} || o.Sum == [32]byte(sum))
}

// lookFor queries what the store has of a pack.
func (v *verifier) lookFor(ctx context.Context, x expected) verdict {
	o, err := v.store.Head(ctx, store.Key(x.domain, x.n))
	switch {
	case errors.Is(err, store.ErrNotFound):
		return lost
	case err != nil:
		return silent
	case !matches(o, x.sum, x.bytes):
		return damaged
	}
	return whole
}
