package web

import (
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/web/view"
)

// agents shows the platform's operators which version of the agent hosts should run, and which they do.
func (s *Web) agents(v *visit) error {
	return s.showAgents(v, view.ChannelForm{Name: host.StableChannel, Percent: "5"})
}

func (s *Web) showAgents(v *visit, form view.ChannelForm) error {
	channels, hosts, err := s.Hosts.Channels(v.r.Context(), v.who)
	if err != nil {
		return err
	}
	out := view.Agents{Form: form}
	for _, c := range channels {
		out.Channels = append(out.Channels, view.AgentChannel{
			Name:    c.Name,
			Version: c.Version,
			Source:  c.Source,
			Percent: c.Percent,
			Try:     c.Try,
			Stopped: c.Stopped,
			Changed: view.Clock(c.ChangedAt, s.Now()),
		})
	}
	for _, c := range hosts {
		out.Hosts = append(out.Hosts, view.AgentCount{
			Channel: c.Channel,
			Version: c.Version,
			Update:  c.Update,
			State:   updateState(agentapi.UpdateState(c.State)),
			Hosts:   c.Hosts,
		})
	}
	return s.render(v, view.AgentsPage(v.page("Agents", "desk"), out))
}

func (s *Web) setChannel(v *visit) error {
	form := view.ChannelForm{}
	for name, to := range map[string]*string{
		"name":    &form.Name,
		"version": &form.Version,
		"source":  &form.Source,
		"percent": &form.Percent,
	} {
		*to = strings.TrimSpace(v.r.FormValue(name))
	}
	percent, err := strconv.Atoi(form.Percent)
	if err != nil {
		err = fault.InvalidField("percent", "want a whole number, 0 to 100")
	} else {
		_, err = s.Hosts.SetChannel(v.r.Context(), v.who, host.NewChannel{
			Name:    form.Name,
			Version: form.Version,
			Source:  form.Source,
			Percent: percent,
		})
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Errors = errs
			return s.showAgents(v, form)
		})
	}
	return back(v, "/admin/agents")
}
