package market

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Terms is an operator's change to the terms of an offer. Nil fields stay unchanged.
type Terms struct {
	Price       *money.Micro // per GPU-hour; to remove the price, use Unlist
	Unlist      bool
	MinGPUs     *int
	MaxDuration *int64 // seconds; 0 = no limit
}

// Bounds of terms.
const (
	MinPrice = money.Micro(1_000)          // 0.001 per GPU-hour
	MaxPrice = money.Micro(10_000_000_000) // 10,000 per GPU-hour
)

// SyncOffers creates the missing offers so that there is one per GPU model of each of the hosts. It runs in the
// transaction that recorded the hosts' inventories. A new offer has no price and is not listed. The offer of a model
// that is no longer present keeps its terms and sells nothing.
func (m *Market) SyncOffers(ctx context.Context, tx *db.Tx, of ...id.Host) error {
	missing, err := tx.Q.ModelsWithoutOffers(ctx, id.UUIDs(of...))
	if err != nil {
		return fmt.Errorf("models of %d hosts: %w", len(of), err)
	}
	if len(missing) == 0 {
		return nil
	}
	p := dbq.AddOffersParams{UsualSharePpm: int32(m.cfg.HostSharePPM)}
	for _, g := range missing {
		p.Ids = append(p.Ids, pgtype.UUID{Bytes: id.New[id.Offer]().UUID(), Valid: true})
		p.Hosts, p.Models = append(p.Hosts, id.UUIDs(g.HostID)...), append(p.Models, g.Model)
	}
	if err := tx.Q.AddOffers(ctx, p); err != nil {
		return fmt.Errorf("offers of %d hosts: %w", len(of), err)
	}
	return nil
}

// HostChange is an operator's change to a host and its offers.
type HostChange struct {
	host.Change
	Terms    Terms
	GPUModel string // apply the terms to this model's offer only; "" = to all offers of the host
}

// ChangeHost changes one host of who's organisation and the terms of its offers, all or nothing, and records price
// changes in the price history. Running leases keep the price and terms at which they were rented. Faults: NotFound,
// Invalid, and Conflict if the organisation has another host of the new name.
func (m *Market) ChangeHost(ctx context.Context, who account.Principal, of id.Host, c HostChange) error {
	if err := c.Terms.check(); err != nil {
		return err
	}
	return m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := c.Apply(ctx, tx, m.cfg.Bus, who, of); err != nil {
			return err
		}
		if c.Terms == (Terms{}) {
			return nil
		}
		return c.setTerms(ctx, tx, who, of)
	})
}

func (c HostChange) setTerms(ctx context.Context, tx *db.Tx, who account.Principal, of id.Host) error {
	hosts, err := host.Lock(ctx, tx, []id.Host{of})
	if err != nil {
		return err
	}
	if len(hosts) == 0 || hosts[0].Org != who.Org {
		return host.NotFound()
	}
	offers, err := readOffers(ctx, tx.Q, of)
	if err != nil {
		return err
	}
	changed := 0
	for _, o := range offers[of] {
		if c.GPUModel != "" && o.GPUModel != c.GPUModel {
			continue
		}
		if err := c.Terms.apply(ctx, tx, who.User, o); err != nil {
			return err
		}
		changed++
	}
	if changed == 0 {
		return fault.New(fault.NotFound, "the host has no such GPUs: prices can be set once it has reported its inventory")
	}
	return nil
}

func (t Terms) check() error {
	var bad fault.Fields
	if t.Price != nil && (*t.Price < MinPrice || *t.Price > MaxPrice) {
		bad.Add("price_per_gpu_hour", "want %s to %s", MinPrice, MaxPrice)
	}
	if t.Price != nil && t.Unlist {
		bad.Add("price_per_gpu_hour", "either a price or none")
	}
	if t.MinGPUs != nil {
		between(&bad, "min_gpus", int64(*t.MinGPUs), 1, MaxGPUsPerNode)
	}
	if t.MaxDuration != nil && *t.MaxDuration != 0 {
		between(&bad, "max_duration", *t.MaxDuration, MinDuration, MaxDuration)
	}
	return bad.Err()
}

// apply stores the terms in an offer.
func (t Terms) apply(ctx context.Context, tx *db.Tx, user id.User, o client.OwnOffer) error {
	before := o.Price
	switch {
	case t.Unlist:
		o.Price = nil
	case t.Price != nil:
		o.Price = t.Price
	}
	if t.MinGPUs != nil {
		o.MinGPUs = *t.MinGPUs
	}
	var longest int64
	if o.MaxDuration != nil {
		longest = *o.MaxDuration
	}
	if t.MaxDuration != nil {
		longest = *t.MaxDuration
	}
	o.MaxDuration = durationOrNone(longest)
	err := tx.Q.UpdateOffer(ctx, dbq.UpdateOfferParams{
		ID:           o.ID,
		Price:        o.Price,
		MinGpus:      int32(o.MinGPUs),
		MaxDurationS: longest,
	})
	if err != nil {
		return fmt.Errorf("terms of %s: %w", o.ID, err)
	}
	if same := before == nil && o.Price == nil || before != nil && o.Price != nil && *before == *o.Price; same {
		return nil
	}
	if err := tx.Q.InsertOfferPrice(ctx, o.ID, o.Price, user); err != nil {
		return fmt.Errorf("price of %s: %w", o.ID, err)
	}
	return nil
}

// OffersOf returns the offers of hosts, listed or not, sorted by model. The caller must have checked that the reader
// may see the hosts.
func (m *Market) OffersOf(ctx context.Context, hosts ...id.Host) (map[id.Host][]client.OwnOffer, error) {
	return readOffers(ctx, m.db.Q, hosts...)
}

func readOffers(ctx context.Context, q *dbq.Queries, hosts ...id.Host) (map[id.Host][]client.OwnOffer, error) {
	rows, err := q.OffersOfHosts(ctx, id.UUIDs(hosts...))
	if err != nil {
		return nil, fmt.Errorf("offers of hosts: %w", err)
	}
	out := make(map[id.Host][]client.OwnOffer, len(hosts))
	for _, r := range rows {
		out[r.HostID] = append(out[r.HostID], client.OwnOffer{
			ID: r.ID, HostID: r.HostID, GPUModel: r.GPUModel, GPUs: int(r.Gpus), Price: r.Price, MinGPUs: int(r.MinGpus),
			MaxDuration: durationOrNone(r.MaxDurationS), HostSharePPM: int(r.HostSharePpm),
		})
	}
	return out, nil
}

func durationOrNone(seconds int64) *int64 {
	if seconds == 0 {
		return nil
	}
	return &seconds
}

// maxPriceChanges is how many price changes of a host PriceHistory returns.
const maxPriceChanges = 100

// PriceHistory returns the last 100 price changes of one host of who's organisation, newest first. Fault: NotFound.
func (m *Market) PriceHistory(ctx context.Context, who account.Principal, of id.Host) ([]client.PriceChange, error) {
	h, err := host.Read(ctx, m.db.Q, of)
	if err != nil {
		return nil, err
	}
	if h.Org != who.Org {
		return nil, host.NotFound()
	}
	rows, err := m.db.Q.PriceChangesOfHost(ctx, of, maxPriceChanges)
	if err != nil {
		return nil, fmt.Errorf("prices of %s: %w", of, err)
	}
	out := make([]client.PriceChange, len(rows))
	for i, r := range rows {
		out[i] = client.PriceChange{At: r.At.UTC(), GPUModel: r.GPUModel, Price: r.Price}
		if r.Before > 0 {
			before := money.Micro(r.Before)
			out[i].Before = &before
		}
	}
	return out, nil
}

// EnrollHost enrols a host with host.Enroll and creates the offers of its GPUs.
func (m *Market) EnrollHost(ctx context.Context, p host.EnrollPolicy,
	r agentapi.EnrollRequest) (h host.Host, err error) {
	err = m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if h, err = host.Enroll(ctx, tx, p, r); err != nil {
			return err
		}
		return m.SyncOffers(ctx, tx, h.ID)
	})
	return h, err
}

// UpdateInventory stores a host's inventory and updates the host's offers. changed is false if the host sent the same
// inventory before: then nothing else is written. Inventories that arrive together are stored together. Faults: those
// of host.RecordInventories.
func (m *Market) UpdateInventory(ctx context.Context, h id.Host, inv agentapi.Inventory) (changed bool, err error) {
	hash, err := host.HashInventory(inv)
	if err != nil {
		return false, err
	}
	if same, err := m.same.Do(ctx, host.Sent{Host: h, Hash: hash}); err != nil || same {
		return false, err
	}
	sent := host.Listed{Host: h, Inventory: inv, Hash: hash}
	r, err := m.changed.Do(ctx, sent)
	if err == nil && r.Alone {
		var out []host.Recorded
		if out, err = m.storeInventories(ctx, []host.Listed{sent}); err == nil {
			r = out[0]
		}
	}
	if err == nil {
		err = r.Refused
	}
	return err == nil, err
}

// storeInventories stores the inventories of hosts in one transaction, with their offers.
func (m *Market) storeInventories(ctx context.Context, all []host.Listed) (out []host.Recorded, err error) {
	err = m.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if out, err = host.RecordInventories(ctx, tx, all); err != nil {
			return err
		}
		var stored []id.Host
		for i, r := range out {
			if r.Stored() {
				stored = append(stored, all[i].Host)
			}
		}
		if len(stored) == 0 {
			return nil
		}
		return m.SyncOffers(ctx, tx, stored...)
	})
	return out, err
}
