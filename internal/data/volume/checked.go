package volume

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// Checked is what the rounds of checks have found in the store.
type Checked struct {
	ListedAt      *time.Time // when the last whole round of the list ended
	ListFailingAt *time.Time // since when the store does not list
	UnreadSince   *time.Time // when the pack was read that was not read for the longest time
	Unknown       int64      // objects of known domains without a row
	Foreign       int64      // other unknown objects of the round
	Example       string     // the key of one of them
	Packs         []FlawedPack
}

// FlawedPack is a pack that the store does not return as it was stored.
type FlawedPack struct {
	Domain id.DataDomain
	Number int64
	Key    string
	State  string // "lost", "damaged", "silent"
	Since  time.Time
	Bytes  int64
	Needed []Needed
}

// Needed is a volume with snapshots that need a pack.
type Needed struct {
	Org       id.Org
	Volume    id.Volume
	Snapshots []int64
}

// maxFlawed bounds the list of packs with which something is wrong.
const maxFlawed = 500

// Checked returns what was found in the store. Fault: Forbidden for all but admins.
func (s *Scrubber) Checked(ctx context.Context, who account.Principal) (c Checked, err error) {
	if err := account.RequireStaff(who); err != nil {
		return c, err
	}
	r, err := s.d.Q.StoreState(ctx)
	if err != nil {
		return c, fmt.Errorf("state of the store: %w", err)
	}
	c = Checked{ListedAt: r.ListEnded, ListFailingAt: r.FailingAt, Unknown: r.Unknown, Foreign: r.Strange,
		Example: r.Example}
	oldest, err := s.d.Q.OldestRead(ctx)
	if err != nil {
		return c, fmt.Errorf("the pack that was read first: %w", err)
	}
	if len(oldest) > 0 {
		c.UnreadSince = &oldest[0]
	}
	packs, err := s.d.Q.ListFlawedPacks(ctx, maxFlawed) // by domain
	if err != nil {
		return c, fmt.Errorf("flawed packs: %w", err)
	}
	var domain id.DataDomain
	var rows []dbq.VolumesWithPacksRow
	for _, p := range packs {
		if p.DomainID != domain {
			domain = p.DomainID
			if rows, err = s.d.Q.VolumesWithPacks(ctx, domain); err != nil {
				return c, fmt.Errorf("snapshots of %s: %w", domain, err)
			}
		}
		f := FlawedPack{Domain: p.DomainID, Number: p.N, Key: store.Key(p.DomainID, p.N), State: p.Found, Since: p.Since,
			Bytes: p.Bytes, Needed: []Needed{}}
		if err := f.addNeeded(rows); err != nil {
			return c, err
		}
		c.Packs = append(c.Packs, f)
	}
	return c, nil
}

// addNeeded adds the volumes whose snapshots need the pack. rows are those of its domain, by volume.
func (f *FlawedPack) addNeeded(rows []dbq.VolumesWithPacksRow) error {
	for _, r := range rows {
		set, err := manifest.DecodePackSet(r.Packs)
		if err != nil {
			return fmt.Errorf("packs of snapshot %d of %s: %w", r.Seq, r.ID, err)
		}
		if !set.Has(f.Number) {
			continue
		}
		if n := len(f.Needed); n == 0 || f.Needed[n-1].Volume != r.ID {
			f.Needed = append(f.Needed, Needed{Org: r.OrgID, Volume: r.ID})
		}
		last := &f.Needed[len(f.Needed)-1]
		last.Snapshots = append(last.Snapshots, r.Seq)
	}
	return nil
}
