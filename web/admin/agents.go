package admin

import (
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/hosts"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// agentPages are which agents hosts run, and which they should.
type agentPages struct {
	*page.Site
}

// agents shows which version of the agent hosts should run, and which they do run.
func (s *agentPages) agents(v *page.Visit) error {
	return s.showAgents(v, ChannelForm{Name: host.StableChannel, Percent: "5"},
		FloorForm{Noticed: s.Now().UTC().Format(time.DateOnly)})
}

func (s *agentPages) showAgents(v *page.Visit, form ChannelForm, floor FloorForm) error {
	channels, counts, err := s.Hosts.Channels(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	floors, err := s.Hosts.Floors(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	out := Agents{Form: form, Floor: floor}
	for _, f := range floors {
		older := "a warning"
		if f.BlocksFrom != nil {
			older = "not rented from " + f.BlocksFrom.Format(time.DateOnly)
		}
		out.Floors = append(out.Floors, Floor{f.Component, f.Branch, f.Least, older, f.NoticedOn, f.Reason})
	}
	for _, c := range channels {
		out.Channels = append(out.Channels, AgentChannel{
			Name:    c.Name,
			Version: c.Version,
			Source:  c.Source,
			Percent: c.Percent,
			Try:     c.Try,
			Stopped: c.Stopped,
			Changed: view.Clock(c.ChangedAt, s.Now()),
		})
	}
	for _, c := range counts {
		out.Hosts = append(out.Hosts, AgentCount{
			Channel: c.Channel,
			Version: c.Version,
			Update:  c.Update,
			State:   hosts.UpdateState(agentapi.UpdateState(c.State)),
			Hosts:   c.Hosts,
		})
	}
	return s.Render(v, AgentsPage(v.Page("Agents", "admin"), out))
}

func (s *agentPages) setChannel(v *page.Visit) error {
	form := ChannelForm{}
	for name, to := range map[string]*string{
		"name":    &form.Name,
		"version": &form.Version,
		"source":  &form.Source,
		"percent": &form.Percent,
	} {
		*to = strings.TrimSpace(v.R.FormValue(name))
	}
	percent, err := strconv.Atoi(form.Percent)
	if err != nil {
		err = fault.InvalidField("percent", "want a whole number, 0 to 100")
	} else {
		_, err = s.Hosts.SetChannel(v.R.Context(), v.Who, host.NewChannel{
			Name:    form.Name,
			Version: form.Version,
			Source:  form.Source,
			Percent: percent,
		})
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showAgents(v, form, FloorForm{})
		})
	}
	return page.Back(v, "/admin/agents")
}

func (s *agentPages) setFloor(v *page.Visit) error {
	form := FloorForm{}
	for name, to := range map[string]*string{
		"component":   &form.Component,
		"branch":      &form.Branch,
		"least":       &form.Least,
		"reason":      &form.Reason,
		"noticed_on":  &form.Noticed,
		"blocks_from": &form.BlocksFrom,
	} {
		*to = strings.TrimSpace(v.R.FormValue(name))
	}
	n := host.NewFloor{Component: form.Component, Branch: form.Branch, Least: form.Least, Reason: form.Reason,
		Noticed: form.Noticed}
	var err error
	if form.BlocksFrom != "" {
		from, wrong := time.Parse(time.DateOnly, form.BlocksFrom)
		if wrong != nil {
			err = fault.InvalidField("blocks_from", "want a day, such as 2026-01-15")
		}
		n.BlocksFrom = &from
	}
	if err == nil {
		_, err = s.Hosts.SetFloor(v.R.Context(), v.Who, n)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showAgents(v, ChannelForm{}, form)
		})
	}
	return page.Back(v, "/admin/agents")
}

func (s *agentPages) removeFloor(v *page.Visit) error {
	_, _, err := s.Hosts.RemoveFloor(v.R.Context(), v.Who, v.R.FormValue("component"), v.R.FormValue("branch"),
		idem.Request{})
	if err != nil && !fault.Is(err, fault.NotFound) { // another admin removed it
		return err
	}
	return page.Back(v, "/admin/agents")
}
