package cluster

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// A host uploads for a bounded number of leases whose GPUs are free, of all organisations and of one.
func TestAdmitUploads_AreBounded(t *testing.T) {
	t.Parallel()
	ended := time.Now()
	clean := &agentapi.LeaseStatus{GPUsFree: true}
	with := func(row dbq.HostLeasesRow, now *agentapi.LeaseStatus, gone bool) []leaseReport {
		return []leaseReport{{now: now, gone: gone, row: row}}
	}
	endedRow := dbq.HostLeasesRow{LeaseEndedAt: &ended}
	goneRow, freeRow := endedRow, endedRow
	goneRow.LeaseGoneAt, freeRow.GpusFreeAt = &ended, &ended
	some, other := id.New[id.Org](), id.New[id.Org]()
	reports := func(n int, by id.Org, uploads, own int32) (out []leaseReport) {
		for range n {
			out = append(out, leaseReport{now: clean, row: dbq.HostLeasesRow{LeaseEndedAt: &ended, RenterOrgID: by,
				Uploads: uploads, OwnUploads: own}})
		}
		return out
	}
	for name, c := range map[string]struct {
		all  []leaseReport
		want int
	}{
		"one":                           {reports(1, some, 0, 0), 1},
		"many of one organisation":      {reports(20, some, 0, 0), maxOwnUploads},
		"one organisation has some":     {reports(20, some, 3, 3), maxOwnUploads - 3},
		"many of two organisations":     {append(reports(20, some, 0, 0), reports(20, other, 0, 0)...), maxUploads},
		"two others have all":           {reports(2, some, maxUploads, 0), 1},
		"the host is full":              {reports(1, some, maxUploads+moreUploads, 0), 0},
		"others have all but one":       {reports(2, some, maxUploads-1, 0), 1},
		"not clean":                     {with(endedRow, &agentapi.LeaseStatus{}, false), 0},
		"not ended":                     {with(dbq.HostLeasesRow{}, clean, false), 0},
		"not in the report":             {with(endedRow, nil, false), 0},
		"its GPUs were free before":     {with(freeRow, clean, false), 0},
		"nothing is left with this one": {with(endedRow, clean, true), 0},
		"nothing was left before":       {with(goneRow, clean, false), 0},
	} {
		admitUploads(c.all)
		n := 0
		for _, r := range c.all {
			if r.freesGPUs {
				n++
			}
		}
		if n != c.want {
			t.Errorf("%s: the GPUs of %d leases are free, want %d", name, n, c.want)
		}
	}
}
