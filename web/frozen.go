package web

import (
	"fmt"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/view"
)

// frozen reads the leases whose money waits.
func (s *Web) frozen(v *visit) ([]view.Frozen, error) {
	list, err := s.Leases.Frozen(v.r.Context(), v.who)
	if err != nil {
		return nil, err
	}
	out := make([]view.Frozen, len(list))
	for i, f := range list {
		out[i] = view.Frozen{
			Lease:    f.Lease.String(),
			Cluster:  f.Cluster.String(),
			Host:     f.Host.String(),
			HostName: f.HostName,
			Operator: f.Operator.String(),
			Currency: f.Currency,
			Posted:   f.Posted,
			Waiting:  f.Waiting,
		}
		for _, c := range f.Conflicts {
			out[i].Conflicts = append(out[i].Conflicts, fmt.Sprintf("Segment %d of start %d: %s stands; %s came %s UTC.",
				c.Seq, c.Epoch, between(c.From, c.To), between(c.OtherFrom, c.OtherTo), view.Clock(c.At, s.Now())))
		}
	}
	return out, nil
}

func between(from, to time.Time) string {
	return from.UTC().Format("15:04:05.000") + "–" + to.UTC().Format("15:04:05.000")
}

// unfreeze lets a frozen lease's money move again, with a reason.
func (s *Web) unfreeze(v *visit) error {
	form := view.UnfreezeForm{Lease: v.r.FormValue("lease"), Reason: strings.TrimSpace(v.r.FormValue("reason"))}
	lease, err := id.Parse[id.Lease](form.Lease)
	if err != nil {
		err = fault.InvalidField("lease", "is the id of a lease")
	} else {
		_, _, err = s.Leases.Unfreeze(v.r.Context(), v.who, lease, form.Reason, v.once("lease", "reason"))
	}
	if fault.Is(err, fault.NotFound) || fault.Is(err, fault.Conflict) { // of the lease, not of the page
		err = fault.InvalidField("lease", "%s", fault.From(err).Message)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showLedger(v, form)
		})
	}
	return back(v, "/admin/books?unfrozen=1")
}
