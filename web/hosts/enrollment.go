package hosts

import (
	"fmt"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
)

// enrollmentProgress renders the progress of a new host's enrolment; the page polls it.
func (s *Pages) enrollmentProgress(v *page.Visit) error {
	e, err := id.Parse[id.Enrollment](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "enrolment not found")
	}
	p, err := s.Hosts.Enrollment(v.R.Context(), v.Who, e)
	if err != nil {
		return err
	}
	priced := false
	if p.Host != nil {
		offers, err := s.Market.OffersOf(v.R.Context(), p.Host.ID)
		if err != nil {
			return err
		}
		for _, o := range offers[p.Host.ID] {
			priced = priced || o.Price != nil
		}
	}
	return s.Render(v, EnrollProgress(enrollChecks(p, priced, s), e.String()))
}

// enrollChecks returns the steps from a token to a host that is offered, and which of them are done.
func enrollChecks(p host.Enrolling, priced bool, s *Pages) EnrollChecks {
	wait := func(title, text string) CheckLine {
		return CheckLine{Title: title, Text: text, Icon: "pending", Tone: "idle"}
	}
	done := func(title, text string) CheckLine {
		return CheckLine{Title: title, Text: text, Icon: "check", Tone: "ok"}
	}
	c := EnrollChecks{Expired: p.Expired}
	switch {
	case p.Expired:
		c.Lines = append(c.Lines, CheckLine{
			Title: "The token has ended",
			Text:  "It was not used in time. Make another.",
			Icon:  "error",
			Tone:  "bad",
		})
		return c
	case p.Host == nil:
		c.Lines = append(c.Lines, CheckLine{
			Title: "Waiting for the machine",
			Text:  "it has not used the token yet",
			Icon:  "preflight",
			Tone:  "live",
		})
	default:
		c.Host, c.HostURL = p.Host.Name, "/hosts/"+p.Host.ID.String()
		c.Lines = append(c.Lines, done("Token used, keys registered", p.Host.Name))
	}
	switch {
	case p.Host != nil && p.Host.Status.LastSyncAt != nil:
		c.Lines = append(c.Lines, done("The agent calls home", lastReport(p.Host.Host, s.Now())))
	case p.Host != nil && p.Host.Status.Connected:
		c.Lines = append(c.Lines, done("The agent calls home", "connected"))
	default:
		c.Lines = append(c.Lines, wait("The agent calls home", "start it: muster-agent run, or its systemd unit"))
	}
	if p.Host == nil || p.Host.InventoryAt == nil {
		c.Lines = append(c.Lines, wait("GPUs and driver are read", ""))
	} else {
		c.Lines = append(c.Lines, done(gpuSummary(p.Host.GPUs), fmt.Sprintf("driver %s, CUDA %s", p.Host.Driver,
			p.Host.CUDAMax)))
		for _, problem := range hostProblems(*p.Host) {
			c.Lines = append(c.Lines, CheckLine{
				Title: problem.Cause,
				Text:  problem.Fix,
				Icon:  problem.State.Icon,
				Tone:  problem.State.Tone,
			})
		}
	}
	if priced {
		c.Lines = append(c.Lines, done("Price and terms", "it is on the market"))
		c.Done = p.Host.Unsellable(s.Now()) == ""
	} else {
		c.Lines = append(c.Lines, wait("Price and terms", "wait for you"))
	}
	return c
}
