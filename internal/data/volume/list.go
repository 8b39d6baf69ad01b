package volume

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

const (
	listEvery = 48 * time.Hour // from the end of one round to the beginning of the next
	listTime  = 40 * time.Second
	listPage  = 1000
	strayMost = 200
	maxNumber = 1 << 40 // a greater number in a key was not given by Reserve
	// DefaultKeepUnknown is how long an object that no row knows is kept: a database that is restored from a backup finds
	// the packs of the lost hours, if it is replaced by a later state within that time.
	DefaultKeepUnknown = 14 * 24 * time.Hour
	// restoredGap is by how much packs' numbers rise when a database was restored: more than the lost hours have used.
	restoredGap = 1_000_000
)

// Inventory compares what the store lists with the packs that are known.
type Inventory struct {
	d           *db.DB
	store       store.Store // nil: there is nothing to list
	log         *slog.Logger
	keepUnknown time.Duration
}

// Take compares the list of the store with the packs that are known, in rounds, from the first key to the last
// one, a few pages at a time. Packs that are listed count as seen; the scrub looks for the others. Objects of known
// data domains that no row knows are deleted once they were known to be so for Config.KeepUnknown. Everything else that
// is below the prefix is left alone, counted, and named to administrators. Take returns how many keys it compared
// or deleted.
func (inv *Inventory) Take(ctx context.Context) (did int, err error) {
	if inv.store == nil {
		return 0, nil
	}
	err = inv.d.Alone(ctx, listLock, func(ctx context.Context) error {
		listed, err := inv.listRound(ctx)
		deleted, err2 := inv.deleteStrays(ctx)
		did = listed + deleted
		return errors.Join(err, err2)
	})
	return did, err
}

// listRound goes on with a round, or begins one if it is time.
func (inv *Inventory) listRound(ctx context.Context) (did int, err error) {
	row, err := inv.d.Q.DataCheck(ctx)
	if err != nil {
		return 0, fmt.Errorf("state of the list: %w", err)
	}
	c := row.DataCheck
	if c.ListBegan == nil {
		if c.ListEnded != nil && row.Now.Sub(*c.ListEnded) < listEvery {
			return 0, nil
		}
		if c.ListBegan, err = inv.d.Q.BeginListRound(ctx); err != nil {
			return 0, fmt.Errorf("begin a round of the list: %w", err)
		}
		c.ListAfter = ""
	}
	for end := time.Now().Add(listTime); time.Now().Before(end); {
		page, err := inv.page(ctx, c.ListAfter)
		if err != nil {
			return did, inv.listFailed(ctx, err)
		}
		if len(page) > 0 {
			if err := inv.compare(ctx, page); err != nil {
				return did, err
			}
			c.ListAfter = page[len(page)-1].Key
			did += len(page)
		}
		if len(page) < listPage {
			return did, inv.endRound(ctx)
		}
	}
	return did, nil
}

// page reads one page of the store's list.
func (inv *Inventory) page(ctx context.Context, after string) ([]store.Listed, error) {
	ctx, cancel := context.WithTimeout(ctx, readTime)
	defer cancel()
	var page []store.Listed
	for o, err := range inv.store.List(ctx, store.Packs, after) {
		if err != nil {
			return nil, err
		}
		if o.Key <= after {
			return nil, fmt.Errorf("the store does not list in the order of keys: %.100q after %.100q", o.Key, after)
		}
		after = o.Key
		if page = append(page, o); len(page) == listPage {
			break
		}
	}
	return page, nil
}

// listFailed notes that the store does not list, and notifies administrators if that lasts.
func (inv *Inventory) listFailed(ctx context.Context, cause error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	inv.log.Warn("the store does not list its objects", "err", cause)
	since, err := inv.d.Q.FailListRound(ctx)
	if err != nil {
		return fmt.Errorf("note that the store does not list: %w", err)
	}
	return notifySilence(ctx, inv.d, since)
}

// keyed is a listed object that may be a pack.
type keyed struct {
	store.Listed
	domain id.DataDomain
	n      int64
}

// packOf returns which pack a key is; ok is false if it is none.
func packOf(o store.Listed) (k keyed, ok bool) {
	k.Listed = o
	rest, ok := strings.CutPrefix(o.Key, store.Packs)
	domain, number, ok2 := strings.Cut(rest, "/")
	if !ok || !ok2 {
		return k, false
	}
	var err error
	if k.domain, err = id.Parse[id.DataDomain](domain); err != nil {
		return k, false
	}
	if k.n, err = strconv.ParseInt(number, 10, 64); err != nil || k.n < 1 || k.n > maxNumber {
		return k, false
	}
	return k, store.Key(k.domain, k.n) == o.Key // one spelling only
}

// compare compares one page with the packs that are known, and notes how far the round is.
func (inv *Inventory) compare(ctx context.Context, page []store.Listed) error {
	f, err := inv.sort(ctx, page)
	if err != nil {
		return err
	}
	return inv.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, domain := range slices.SortedFunc(maps.Keys(f.above), id.DataDomain.Compare) {
			if err := tx.Q.RaiseNextPack(ctx, f.above[domain]+1, domain); err != nil {
				return fmt.Errorf("raise the next number of %s: %w", domain, err)
			}
		}
		if err := tx.Q.SetPacksListed(ctx, f.seen, f.seenNs); err != nil {
			return fmt.Errorf("note listed packs: %w", err)
		}
		if len(f.strays.Ns) > 0 {
			if err := tx.Q.NoteStrays(ctx, f.strays); err != nil {
				return fmt.Errorf("note unknown objects: %w", err)
			}
		}
		if err := tx.Q.MoveListRound(ctx, page[len(page)-1].Key, f.strange, f.example); err != nil {
			return fmt.Errorf("note how far the list is: %w", err)
		}
		return nil
	})
}

// A find is what the objects of a page are.
type find struct {
	seen    []pgtype.UUID // domains of live packs that are listed with their length
	seenNs  []int64       // their numbers
	strays  dbq.NoteStraysParams
	above   map[id.DataDomain]int64 // the greatest number that its domain has not given yet
	strange int64                   // no packs, or of domains that are not known
	example string                  // one of these
}

// sort finds out what the objects of a page are.
func (inv *Inventory) sort(ctx context.Context, page []store.Listed) (*find, error) {
	f := &find{above: map[id.DataDomain]int64{}}
	f.strays.KeepS = inv.keepUnknown.Seconds()
	var packs []keyed
	var domains []pgtype.UUID
	var ns, indexes []int64
	for _, o := range page {
		k, ok := packOf(o)
		if !ok {
			f.odd(o.Key)
			continue
		}
		indexes = append(indexes, int64(len(packs)))
		packs, domains, ns = append(packs, k), append(domains, id.UUIDs(k.domain)...), append(ns, k.n)
	}
	rows, err := inv.d.Q.ListedPacks(ctx, domains, ns, indexes)
	if err != nil {
		return nil, fmt.Errorf("packs of a page of the list: %w", err)
	}
	for _, r := range rows {
		k := packs[r.I]
		switch {
		case !r.Known:
			f.odd(k.Key)
		case r.State == "":
			f.stray(k)
			if k.n >= r.NextPack {
				f.above[k.domain] = max(f.above[k.domain], k.n)
			}
		case r.State == "live" && r.Bytes == k.Bytes: // else the scrub looks what is there
			f.seen, f.seenNs = append(f.seen, domains[r.I]), append(f.seenNs, k.n)
		}
	}
	return f, nil
}

func (f *find) odd(key string) {
	if f.strange++; f.example == "" {
		f.example = clip(key)
	}
}

func (f *find) stray(k keyed) {
	s := &f.strays
	s.Domains, s.Ns = append(s.Domains, id.UUIDs(k.domain)...), append(s.Ns, k.n)
	s.Sizes, s.Stored = append(s.Sizes, k.Bytes), append(s.Stored, k.At)
}

// endRound ends a round: what it has not seen is looked for from now on.
func (inv *Inventory) endRound(ctx context.Context) error {
	return inv.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		r, err := tx.Q.EndListRound(ctx)
		if err != nil {
			return fmt.Errorf("end a round of the list: %w", err)
		}
		if err := tx.Q.ForgetStrays(ctx, *r.WholeFrom); err != nil {
			return fmt.Errorf("forget objects that are gone: %w", err)
		}
		if r.Strange == 0 {
			return nil
		}
		inv.log.Warn("the store has objects that belong to nothing here", "objects", r.Strange, "one", r.Example)
		return notify.AddForAdmins(ctx, tx, notify.Notice{
			Key: "store_strange:" + r.Example, Severity: notify.Warn,
			Title: "The store of volumes has unknown objects",
			Body: fmt.Sprintf("It has %d objects below its prefix that are no packs, or of data domains that this database "+
				"does not know, such as %s. They are left alone: another installation, or a later state of this database, may "+
				"need them.", r.Strange, r.Example),
		})
	})
}

// deleteStrays deletes objects of known domains that no row has known for a long time.
func (inv *Inventory) deleteStrays(ctx context.Context) (deleted int, err error) {
	rows, err := inv.d.Q.TakeStrays(ctx, inv.keepUnknown.Seconds(), strayMost)
	if err != nil {
		return 0, fmt.Errorf("unknown objects: %w", err)
	}
	var errs []error
	for _, r := range rows {
		gone, err := inv.deleteStray(ctx, r.DomainID, r.N)
		if err != nil { // it is tried again in an hour; the others are deleted all the same
			errs = append(errs, fmt.Errorf("delete unknown object %d of %s: %w", r.N, r.DomainID, err))
		}
		if gone {
			deleted++
		}
	}
	return deleted, errors.Join(errs...)
}

// deleteStray deletes an object unless its number is known or reserved. A number that is neither is below the next one
// of its domain: it is never given again, so that nothing can be stored under its key between the two steps.
func (inv *Inventory) deleteStray(ctx context.Context, domain id.DataDomain, n int64) (gone bool, err error) {
	err = inv.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Q.LockDataDomain(ctx, domain); err != nil {
			return err
		}
		gone, err = tx.Q.DeletableStray(ctx, domain, n)
		return err
	})
	if err != nil || !gone {
		return false, err
	}
	if err := inv.store.Delete(ctx, store.Key(domain, n)); err != nil {
		return false, err
	}
	inv.log.Info("deleted an object of the store that no row knows", "domain", domain, "pack", n)
	return true, inv.d.Q.ForgetStray(ctx, domain, n)
}

// Restored makes a database that was restored to an earlier moment give numbers to packs that the store does not have
// yet: those of the lost hours are there. From now on for Config.KeepUnknown, no pack is deleted: a later state of the
// database, which may still return, may need it.
func Restored(ctx context.Context, tx *db.Tx) error {
	if err := tx.Q.RaiseNextPacks(ctx, restoredGap); err != nil {
		return fmt.Errorf("raise the numbers of packs: %w", err)
	}
	if err := tx.Q.SetStoreRestored(ctx); err != nil {
		return fmt.Errorf("note the restore for the store: %w", err)
	}
	return nil
}
