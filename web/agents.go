package web

import (
	"context"
	"strconv"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
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

// followChannel puts a host on a channel.
func (s *Web) followChannel(v *visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	channel := strings.TrimSpace(v.r.FormValue("agent_channel"))
	err = s.Market.ChangeHost(v.r.Context(), v.who, h, market.HostChange{Change: host.Change{Channel: &channel}})
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			v.channelError = errs["agent_channel"]
			return s.showHost(v, h, errs[""], nil)
		})
	}
	return back(v, "/hosts/"+h.String()+"#agent")
}

// hostAgent is the agent of a host, for its page.
func (s *Web) hostAgent(ctx context.Context, d host.Detail) (view.HostAgent, error) {
	a, err := s.Hosts.Agent(ctx, d.Host)
	return view.HostAgent{
		Version: d.Status.AgentVersion,
		Channel: a.Channel,
		Wanted:  a.Wanted,
		Detail:  a.Detail,
		State:   updateState(agentapi.UpdateState(a.State)),
	}, err
}

func updateState(u agentapi.UpdateState) *view.State {
	states := map[agentapi.UpdateState]view.State{
		agentapi.UpdateUnmanaged:  {Word: "Updated by hand only", Icon: "wrench", Tone: "idle"},
		agentapi.UpdateFetching:   {Word: "Fetching a version", Icon: "pulling", Tone: "live"},
		agentapi.UpdateWaiting:    {Word: "Waiting for a version", Icon: "warn", Tone: "warn"},
		agentapi.UpdateTrial:      {Word: "A version on trial", Icon: "pending", Tone: "live"},
		agentapi.UpdateDone:       {Word: "Updated", Icon: "check", Tone: "ok"},
		agentapi.UpdateRefused:    {Word: "Refused a version", Icon: "error", Tone: "bad"},
		agentapi.UpdateRolledBack: {Word: "Went back to the version before", Icon: "error", Tone: "bad"},
	}
	if s, ok := states[u]; ok {
		return &s
	}
	return nil
}
