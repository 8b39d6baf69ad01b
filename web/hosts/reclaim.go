package hosts

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// reclaimNotices are the notice periods that the page offers; an hour is the shortest that costs nothing.
var reclaimNotices = []ReclaimNotice{
	{Seconds: "3600", Label: "1 hour"}, {Seconds: "7200", Label: "2 hours"}, {Seconds: "21600", Label: "6 hours"},
	{Seconds: "86400", Label: "1 day"}, {Seconds: "604800", Label: "7 days"},
}

// hostReclaim describes what reclaiming the host means now; nil if it cannot be reclaimed.
func (s *Pages) hostReclaim(v *page.Visit, d host.Detail) (*Reclaim, error) {
	if !slices.Contains(d.Actions(), "reclaim") {
		return nil, nil
	}
	f, err := s.Clusters.Hosts.ForecastReclaim(v.R.Context(), v.Who, d.ID)
	if err != nil {
		return nil, err
	}
	out := &Reclaim{Notices: reclaimNotices}
	if d.ReclaimAt != nil {
		out.At = view.Clock(*d.ReclaimAt, s.Now())
	}
	out.Cost = "Nothing runs on it: it costs nothing."
	if f.Leases > 0 {
		out.Cost = fmt.Sprintf("What runs ends at once, in the middle of its work: %s. The renters get back what the last "+
			"hour cost: %s %s by what this host has reported so far, %s of it from your earnings, and as much more as has "+
			"run since.",
			leasesWord(f.Leases), f.Credit.Plain(), s.Currency, f.HostPart.Plain())
	}
	return out, nil
}

func leasesWord(n int) string {
	if n == 1 {
		return "1 lease"
	}
	return strconv.Itoa(n) + " leases"
}

func (s *Pages) reclaimHost(v *page.Visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(v.R.FormValue("notice"), 10, 64)
	if err != nil || seconds < 0 || seconds > int64(host.MaxNotice.Seconds()) {
		err = fault.New(fault.Invalid, "Choose how long running leases continue.")
	} else {
		_, _, err = s.Hosts.Act(v.R.Context(), v.Who, h, host.Action{Name: host.Reclaim, Notice: seconds}, idem.Request{})
	}
	if err != nil {
		return s.Again(v, err, func(map[string]string) error {
			return s.showHost(v, h, hostForms{trouble: fault.From(err).Message})
		})
	}
	return page.Back(v, "/hosts/"+h.String())
}
