package admin

import (
	"strings"
	"time"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// contestPages decide which of two hosts a GPU belongs to.
type contestPages struct {
	*page.Site
}

// contests lists the GPUs that hosts of several operators list, and what shows whose they are.
func (s *contestPages) contests(v *page.Visit) error { return s.showContests(v, ActForm{}) }

func (s *contestPages) showContests(v *page.Visit, form ActForm) error {
	list, err := s.Hosts.Contested(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	form.Once = page.NewOnce()
	return s.Render(v, ContestsPage(v.Page("Contested GPUs", "admin"), Contests{
		Open:    groupContests(list, false, s.Now()),
		Decided: groupContests(list, true, s.Now()),
		Form:    form,
		Done:    page.Done(v, map[string]string{"award": "The decision is recorded. The operators were notified."}),
	}))
}

// groupContests returns the contested GPUs on which staff have decided, or those on which they have not, each with the
// hosts that list it. GPUs with the same UUID are adjacent in list.
func groupContests(list []host.ContestedGPU, decided bool, now time.Time) []ContestView {
	var out []ContestView
	for _, g := range list {
		if (g.AwardedAt != nil) != decided {
			continue
		}
		if len(out) == 0 || out[len(out)-1].UUID != g.UUID {
			c := ContestView{UUID: g.UUID, Model: view.ModelName(g.Model), Reason: g.AwardReason}
			if g.AwardedAt != nil {
				c.Decided = view.Clock(*g.AwardedAt, now)
			}
			out = append(out, c)
		}
		row := ContestRow{
			Host:     g.Host.String(),
			HostName: g.HostName,
			Org:      g.Org.String(),
			OrgName:  g.OrgName,
			Listed:   view.Clock(g.ListedAt, now),
			State:    contestState(g),
			Rented:   "never by others",
			Retired:  g.HostState == host.Retired,
			Awarded:  g.Awarded,
		}
		if g.Leases > 0 {
			row.Rented = view.Plural(g.Leases, "lease", "leases") + ", " + view.Dur(g.Billed)
		}
		last := &out[len(out)-1]
		last.Rows = append(last.Rows, row)
	}
	return out
}

func contestState(g host.ContestedGPU) view.State {
	switch {
	case g.Awarded && g.Contest == host.Incumbent:
		return view.State{Word: "Awarded, offered", Icon: "proven", Tone: "ok"}
	case g.Contest == host.Incumbent:
		return view.State{Word: "Listed first and rented: offered", Icon: "check", Tone: "ok"}
	case g.Contest == host.Holder:
		return view.State{Word: "Listed first: not offered", Icon: "warn", Tone: "warn"}
	}
	return view.State{Word: "Listed later: not offered", Icon: "stopped", Tone: "idle"}
}

// awardGPU records whose a contested GPU is.
func (s *contestPages) awardGPU(v *page.Visit) error {
	form := ActForm{
		Act:    "award",
		Target: strings.TrimSpace(v.R.FormValue("gpu")),
		Value:  v.R.FormValue("host"),
		Reason: strings.TrimSpace(v.R.FormValue("reason")),
	}
	to, err := id.Parse[id.Host](form.Value)
	switch {
	case err != nil || to.IsZero():
		err = fault.InvalidField("host", "Choose the host that has the GPU.")
	case form.Reason == "":
		err = fault.InvalidField("reason", "Give the reason: both operators read it.")
	default:
		_, _, err = s.Hosts.AwardGPU(v.R.Context(), v.Who, form.Target, to, form.Reason, v.Once("gpu", "host", "reason"))
		err = inForm(err)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showContests(v, form)
		})
	}
	return page.Back(v, "/admin/contests?done=award")
}
