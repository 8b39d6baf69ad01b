package hosts

import (
	"context"
	"strings"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// followChannel sets the update channel of a host's agent.
func (s *Pages) followChannel(v *page.Visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	channel := strings.TrimSpace(v.R.FormValue("agent_channel"))
	err = s.Market.ChangeHost(v.R.Context(), v.Who, h, market.HostChange{Change: host.Change{Channel: &channel}})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showHost(v, h, hostForms{trouble: errs[""], channel: errs["agent_channel"]})
		})
	}
	return page.Back(v, "/hosts/"+h.String()+"#agent")
}

// hostAgent describes a host's agent for the host's page.
func (s *Pages) hostAgent(ctx context.Context, d host.Detail) (HostAgent, error) {
	a, err := s.Hosts.Agent(ctx, d.Host)
	return HostAgent{
		Version: d.Status.AgentVersion,
		Channel: a.Channel,
		Wanted:  a.Wanted,
		Detail:  a.Detail,
		State:   UpdateState(agentapi.UpdateState(a.State)),
	}, err
}

func UpdateState(u agentapi.UpdateState) *view.State {
	states := map[agentapi.UpdateState]view.State{
		agentapi.UpdateUnmanaged:  {Word: "Not updated automatically", Icon: "wrench", Tone: "idle"},
		agentapi.UpdateFetching:   {Word: "Downloading a version", Icon: "pulling", Tone: "live"},
		agentapi.UpdateWaiting:    {Word: "Waiting for a version", Icon: "warn", Tone: "warn"},
		agentapi.UpdateTrial:      {Word: "A version on trial", Icon: "pending", Tone: "live"},
		agentapi.UpdateDone:       {Word: "Updated", Icon: "check", Tone: "ok"},
		agentapi.UpdateRefused:    {Word: "Rejected a version", Icon: "error", Tone: "bad"},
		agentapi.UpdateRolledBack: {Word: "Rolled back to the previous version", Icon: "error", Tone: "bad"},
	}
	if s, ok := states[u]; ok {
		return &s
	}
	return nil
}
