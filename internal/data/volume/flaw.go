package volume

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/data/manifest"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/notify"
)

// flawed notes that packs of a domain are lost or damaged, and names those of which that is new: to the organisation,
// with the snapshots that need them and the last one that does not, and to administrators. They are not billed from now
// on. A pack that nothing needs any more is left alone.
func (s *Scrubber) flawed(ctx context.Context, domain id.DataDomain, k verdict, ns []int64) error {
	return s.d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Q.LockDataDomain(ctx, domain); err != nil {
			return err
		}
		fresh, err := tx.Q.SetPacksFlawed(ctx, dbq.SetPacksFlawedParams{
			DomainID: domain, Ns: ns, Damaged: k == damaged, RetryS: retryMost.Seconds(),
		})
		if err != nil {
			return fmt.Errorf("note that packs of %s are %s: %w", domain, k, err)
		}
		if len(fresh) == 0 {
			return nil
		}
		s.log.Error("packs in the store are not as they were stored", "are", k, "domain", domain, "packs", fresh)
		if err := levelNow(ctx, tx, domain); err != nil {
			return err
		}
		hit, err := readFlaws(ctx, tx.Q, domain)
		if err != nil {
			return err
		}
		for _, f := range hit {
			if err := f.notify(ctx, tx, k, fresh); err != nil {
				return err
			}
		}
		return notifyFlawed(ctx, tx, domain, k, fresh, hit)
	})
}

// flaws is what a volume cannot restore whole.
type flaws struct {
	vol   id.Volume
	org   id.Org
	name  string
	packs map[int64]int64 // how many flawed packs the snapshots with these numbers need
	good  int64           // number of the last snapshot that needs none; 0: there is none
	goodT time.Time       // which shows this moment
}

// readFlaws returns the volumes of a domain with snapshots that need lost or damaged packs.
func readFlaws(ctx context.Context, q *dbq.Queries, domain id.DataDomain) ([]*flaws, error) {
	bad, err := q.FlawedPacks(ctx, domain)
	if err != nil || len(bad) == 0 {
		return nil, err
	}
	rows, err := q.VolumesWithPacks(ctx, domain) // by volume and number
	if err != nil {
		return nil, fmt.Errorf("snapshots of %s: %w", domain, err)
	}
	var all []*flaws
	for _, r := range rows {
		if len(all) == 0 || all[len(all)-1].vol != r.ID {
			all = append(all, &flaws{vol: r.ID, org: r.OrgID, name: r.Name, packs: map[int64]int64{}})
		}
		f := all[len(all)-1]
		n, err := needed(r.Packs, bad)
		if err != nil {
			return nil, fmt.Errorf("packs of snapshot %d of %s: %w", r.Seq, r.ID, err)
		}
		if n > 0 {
			f.packs[r.Seq] = n
		} else {
			f.good, f.goodT = r.Seq, r.CutAt
		}
	}
	return slices.DeleteFunc(all, func(f *flaws) bool { return len(f.packs) == 0 }), nil
}

// needed returns how many of the packs an encoded set has.
func needed(set []byte, packs []int64) (n int64, err error) {
	if len(packs) == 0 {
		return 0, nil
	}
	s, err := manifest.DecodePackSet(set)
	if err != nil {
		return 0, err
	}
	for _, p := range packs {
		if s.Has(p) {
			n++
		}
	}
	return n, nil
}

// numbers returns the flawed snapshots, such as "3 to 7 and 9".
func (f *flaws) numbers() string {
	set := new(manifest.PackSet)
	for seq := range f.packs {
		set.Add(seq)
	}
	return runs(set)
}

// runs names numbers, at most ten runs of them.
func runs(set *manifest.PackSet) string {
	var parts []string
	for _, r := range set.Runs() {
		if len(parts) == 10 {
			parts = append(parts, "others")
			break
		}
		switch r.Last - r.First {
		case 0:
			parts = append(parts, strconv.FormatInt(r.First, 10))
		case 1:
			parts = append(parts, strconv.FormatInt(r.First, 10), strconv.FormatInt(r.Last, 10))
		default:
			parts = append(parts, fmt.Sprintf("%d to %d", r.First, r.Last))
		}
	}
	if len(parts) < 2 {
		return strings.Join(parts, "")
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

// notify notifies the org of a volume, once for each set of snapshots.
func (f *flaws) notify(ctx context.Context, tx *db.Tx, k verdict, fresh []int64) error {
	numbers := f.numbers()
	sum := sha256.Sum256([]byte(numbers))
	body := fmt.Sprintf("In the store, %s. Snapshots that cannot be restored whole: %s. Files that need it cannot be "+
		"read, others can. ", packsAre(fresh, k), numbers)
	if f.good > 0 {
		body += fmt.Sprintf("The last snapshot that is whole is %d, of %s UTC: muster volume restore %s %d makes it the "+
			"present state. ", f.good, f.goodT.UTC().Format(time.DateTime), f.name, f.good)
	} else {
		body += "No snapshot of the volume is whole. "
	}
	_, err := notify.Add(ctx, tx, notify.Notice{
		Org: f.org, Severity: notify.Bad, Object: f.vol.String(),
		Key:   fmt.Sprintf("pack_%s:%s:%s", k, f.vol, hex.EncodeToString(sum[:8])),
		Title: fmt.Sprintf("A part of the volume %s is %s", f.name, k),
		Body:  body + "If a cluster still has the volume, its next snapshot stores the part again.",
	})
	return err
}

func packsAre(ns []int64, k verdict) string {
	if len(ns) == 1 {
		return fmt.Sprintf("pack %d is %s", ns[0], k)
	}
	return fmt.Sprintf("packs %s are %s", runs(manifest.NewPackSet(ns...)), k)
}

// notifyFlawed names packs of a domain to administrators, once a day for each domain.
func notifyFlawed(ctx context.Context, tx *db.Tx, domain id.DataDomain, k verdict, fresh []int64, hit []*flaws) error {
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	body := fmt.Sprintf("Of %s, %s.", domain, packsAre(fresh, k))
	for i, f := range hit {
		if i == 5 {
			body += fmt.Sprintf(" Volumes beyond these: %d.", len(hit)-i)
			break
		}
		body += fmt.Sprintf(" The volume %s of %s needs it in snapshots %s.", f.vol, f.org, f.numbers())
	}
	if len(hit) == 0 {
		body += " No snapshot needs it."
	}
	return notify.AddForAdmins(ctx, tx, notify.Notice{
		Key: fmt.Sprintf("store_%s:%s:%s", k, domain, now.UTC().Format(time.DateOnly)), Severity: notify.Bad,
		Title:  fmt.Sprintf("The store of volumes has %s packs", k),
		Object: domain.String(),
		Body: body + " Restore them from the store's copies, if there are any; the scrub sees it within a day. muster " +
			"admin store lists all of them.",
	})
}
