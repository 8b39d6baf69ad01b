package volume

import (
	"context"
	"fmt"
	"math/big"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const (
	// coverTime is the time for which a person's credit has to pay for what an organisation that has paid nothing stores,
	// unless a card is saved.
	coverTime = 24 * time.Hour
	// unpaidReads is how long who does not pay for storage may read as before. Afterwards, as many bytes may be read as
	// are stored, which is one copy of everything.
	unpaidReads = 3 * 24 * time.Hour
	// paidReads is how many times what it stores an organisation that has paid may read in a day.
	paidReads = 3
	// keptMore is how many snapshots a volume keeps in addition to the last ones: one of each hour of a day, and one that
	// is being sent.
	keptMore = 25
	// leastPack is what a pack counts on average at least, in bytes: each costs requests to the store, whatever its size.
	leastPack = 256 << 10
)

// standing is what decides how much an organisation may store and read.
type standing struct {
	paid       money.Nano // what is left of its payments: neither refunded nor disputed
	spendable  money.Nano // in its wallet
	postpaid   bool       // it pays by invoice
	card       bool       // a card is saved
	unverified bool       // none of its owners has a verified e-mail address
	stored     int64      // bytes of its data domains, granted ones included
	read       int64      // bytes that people have read today
	// freeStored and freeRead are the same of it and its circle (see package account), as far as they have paid nothing.
	freeStored, freeRead int64
	unpaidSince          *time.Time // since when it has not paid for storage
	now                  time.Time
	readUnpaid           int64 // bytes that were read since it has not paid for unpaidReads
}

// pays reports whether the organisation has paid, or pays by invoice.
func (s standing) pays() bool { return s.paid > 0 || s.postpaid }

// quotas are the limits of a platform.
type quotas struct {
	price                        money.Nano // of a stored GB for an hour
	stored, freeStored, freeRead int64
}

// quotasOf returns the limits of a configuration.
func quotasOf(cfg Config) quotas {
	return quotas{price: cfg.PricePerGBHour, stored: cfg.MaxStored, freeStored: cfg.FreeStored, freeRead: cfg.FreeRead}
}

// cost returns what bytes cost that are stored for a time.
func (q quotas) cost(bytes int64, d time.Duration) *big.Int {
	n := new(big.Int).Mul(big.NewInt(bytes), big.NewInt(int64(q.price)))
	return n.Mul(n, big.NewInt(int64(d/time.Microsecond))).Quo(n, perGBHour)
}

// covers reports whether an amount pays for bytes that are stored for a time.
func (q quotas) covers(amount money.Nano, bytes int64, d time.Duration) bool {
	return q.cost(bytes, d).Cmp(big.NewInt(int64(amount))) <= 0
}

// store decides whether more bytes may be granted: to a person's upload, or to a host.
//
// What may remain unpaid is bounded: by a quota for each person as long as nothing was paid, and afterwards by what was
// paid, since data that is not paid for is kept for unpaidLife.
func (q quotas) store(s standing, more int64, byPerson bool) error {
	total := s.stored + more
	switch {
	case total > q.stored:
		return refused(agentapi.VolumeQuota, "the organisation stores %d GB, and may store %d GB", s.stored/GB,
			q.stored/GB)
	case s.unpaidSince != nil:
		return refused(agentapi.VolumeQuota, "storage is not paid for: add credit")
	case q.price == 0, s.postpaid:
		return nil
	case s.pays():
		if total <= q.freeStored || q.covers(max(s.paid, s.spendable), total, unpaidLife) {
			return nil
		}
		return refused(agentapi.VolumeQuota, "the organisation stores %d GB, and neither its payments so far nor its credit "+
			"pay for more for %d days: add credit", s.stored/GB, unpaidLife/(24*time.Hour))
	case s.freeStored+more > q.freeStored:
		return refused(agentapi.VolumeQuota, "without a payment, your organisations together may store %.3g GB: add "+
			"credit", float64(q.freeStored)/GB)
	case !byPerson: // its cluster is paid for
		return nil
	case s.unverified:
		return refused(agentapi.VolumeQuota, "verify your e-mail address before you store data")
	case s.card, q.covers(s.spendable, total, coverTime) && s.spendable > 0:
		return nil
	}
	return refused(agentapi.VolumeQuota, "there is no credit that pays for what is stored: add credit, or save a card")
}

// read decides whether what was read today, the last request included, was within the limits. Hosts read for clusters
// that are paid for.
func (q quotas) read(s standing, byHost bool) error {
	switch {
	case s.unpaidSince != nil && s.now.Sub(*s.unpaidSince) > unpaidReads && s.readUnpaid > s.stored:
		return refused(agentapi.VolumeQuota, "storage has not been paid for since %s, and all that is stored was read "+
			"since: add credit", s.unpaidSince.UTC().Format(time.DateOnly))
	case byHost:
		return nil
	case s.pays():
		if s.read > max(q.freeRead, paidReads*s.stored) {
			return refused(agentapi.VolumeQuota, "the organisation has read as much today as it may: try it again tomorrow")
		}
	case s.freeRead > q.freeRead:
		return refused(agentapi.VolumeQuota, "without a payment, your organisations together may read %.3g GB a day: "+
			"add credit, or try it again tomorrow", float64(q.freeRead)/GB)
	}
	return nil
}

// limiter limits what organisations store and read.
type limiter struct {
	d        *db.DB
	currency string
	limits   quotas
	files    fileReads // bytes that were read for pages and downloads, and are not counted yet
}

// standing reads what decides the limits of an organisation.
func (l *limiter) standing(ctx context.Context, q *dbq.Queries, org id.Org) (standing, error) {
	r, err := q.StorageStanding(ctx, id.UUIDs(org)[0], l.currency, leastPack)
	if err != nil {
		return standing{}, fmt.Errorf("what %s stores and has paid: %w", org, err)
	}
	return standing{
		paid: money.Nano(r.Paid), postpaid: r.Postpaid, card: r.Card, unverified: r.Unverified, stored: r.Stored,
		read: r.Read, freeStored: r.FreeStored, freeRead: r.FreeRead, unpaidSince: r.UnpaidSince, now: r.Now,
		readUnpaid: r.ReadUnpaid,
	}, nil
}

// admit counts granted bytes, and refuses those that exceed what the volumes of the locked domain or the organisation
// may store.
func (l *limiter) admit(ctx context.Context, tx *db.Tx, x dbq.DataSession, fresh int64) error {
	d, err := tx.Q.DomainRoom(ctx, leastPack, keptMore, x.DomainID)
	if err != nil {
		return fmt.Errorf("room of %s: %w", x.DomainID, err)
	}
	if room := integer(d.Room); big.NewInt(d.Stored+fresh).Cmp(room) > 0 {
		return refused(agentapi.VolumeQuota, "the snapshots of the volume and its clones take %d GB, and have room for "+
			"%s GB: delete some, or raise the volume's size or the number that it keeps", d.Stored/GB,
			room.Quo(room, big.NewInt(GB)))
	}
	// The volumes of a circle are granted packs one after the other, so that the limits hold.
	if err := tx.Q.LockStored(ctx, id.UUIDs(d.OrgID)[0]); err != nil {
		return fmt.Errorf("lock what the circle of %s stores: %w", d.OrgID, err)
	}
	s, err := l.standing(ctx, tx.Q, d.OrgID)
	if err == nil {
		s.spendable, err = ledger.Spendable(ctx, tx.Q, ledger.Wallet(d.OrgID, l.currency))
	}
	if err != nil {
		return err
	}
	if err := l.limits.store(s, fresh, x.LeaseID.IsZero()); err != nil {
		return err
	}
	if err := tx.Q.AddDataGranted(ctx, fresh, x.DomainID); err != nil {
		return fmt.Errorf("count granted bytes of %s: %w", x.DomainID, err)
	}
	return nil
}
