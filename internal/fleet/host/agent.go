package host

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Update channels that exist on every platform.
const (
	StableChannel = "stable" // the default for hosts whose operator chose no channel
	OffChannel    = "off"    // no automatic updates: the operator updates by hand
)

// Agent returns the update state of the agent on h. h comes from Get.
func (x *Hosts) Agent(ctx context.Context, h Host) (client.HostAgent, error) {
	r, err := x.db.Q.HostAgentOrder(ctx, h.ID)
	if err != nil {
		return client.HostAgent{}, fmt.Errorf("agent of %s: %w", h.ID, err)
	}
	a := client.HostAgent{
		Channel:      r.Channel,
		Capabilities: r.Capabilities,
		State:        r.UpdateState,
		Update:       r.UpdateVersion,
		Detail:       r.UpdateDetail,
	}
	if o := order(h.ID, h.Status.AgentVersion, r); o != nil {
		a.Wanted = o.Version
	}
	return a, nil
}

// UpdateOrder stores the update state and capabilities that an agent reports, and returns the order to install another
// version, or nil if the agent should keep its version. If too many hosts of a channel roll a version back, UpdateOrder
// stops that version for the channel.
func (a *Agents) UpdateOrder(ctx context.Context, host id.Host, s agentapi.Sync) (*agentapi.UpdateOrder, error) {
	k, err := a.agents.Do(ctx, contact{host, s})
	switch {
	case err != nil:
		return nil, fmt.Errorf("agent of %s: %w", host, err)
	case !k.found:
		return nil, fmt.Errorf("agent of %s: %w", host, pgx.ErrNoRows)
	case k.tooOld(s):
		return nil, nil
	}
	r := k.order()
	if k.news {
		err := a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error { return putAgent(ctx, tx, r, k.now) })
		if err != nil {
			return nil, fmt.Errorf("agent of %s: %w", host, err)
		}
		if r, err = a.db.Q.HostAgentOrder(ctx, host); err != nil {
			return nil, fmt.Errorf("agent of %s: %w", host, err)
		}
	}
	return order(host, s.AgentVersion, r), nil
}

// AgentOf returns what is stored of the agent that sent a report.
func AgentOf(host id.Host, s agentapi.Sync) dbq.PutHostAgentParams {
	a := dbq.PutHostAgentParams{HostID: host, Capabilities: cleanCapabilities(s.Capabilities)}
	if u := s.Update; u != nil {
		a.UpdateState, a.UpdateVersion, a.UpdateTry, a.UpdateDetail = text.Clip(string(u.State), 20),
			text.Clip(u.Version, 64), int32(u.Try), text.Clip(u.Detail, 500)
	}
	return a
}

// VersionOf returns what is stored of the version of the agent that sent a report.
func VersionOf(s agentapi.Sync) string { return text.Clip(s.AgentVersion, 40) }

// putAgent stores the changed fields, and stops the channel if too many of its hosts rolled its version back.
func putAgent(ctx context.Context, tx *db.Tx, r dbq.HostAgentOrderRow, now dbq.PutHostAgentParams) error {
	failed := now.UpdateState == string(agentapi.UpdateRolledBack) && now.UpdateVersion == r.Version &&
		now.UpdateTry == r.Try
	var c dbq.AgentChannel
	if failed {
		var err error
		if c, err = tx.Q.LockAgentChannel(ctx, r.Channel); err != nil && !db.NoRows(err) {
			return err
		}
	}
	if err := tx.Q.PutHostAgent(ctx, now); err != nil {
		return err
	}
	if c.Name == "" || c.Stopped != "" || c.Version != now.UpdateVersion || c.Try != now.UpdateTry {
		return nil
	}
	n, err := tx.Q.CountUpdates(ctx, c.Name, c.Version, c.Try)
	if err != nil {
		return err
	}
	if why := tooManyFailed(n.Done, n.Failed); why != "" {
		return tx.Q.StopAgentChannel(ctx, why, c.Name)
	}
	return nil
}

// maxFailed is the number of hosts that must roll a version back for its channel to stop.
const maxFailed = 3

// tooManyFailed returns the reason for which a version must be stopped, or "". If the first host to try a version
// fails, that is reason enough: the first hosts are there to find such failures.
func tooManyFailed(done, failed int64) string {
	if failed >= maxFailed || failed > done {
		return fmt.Sprintf("%d hosts went back to the version before, %d kept it", failed, done)
	}
	return ""
}

func cleanCapabilities(all []string) []string {
	out := []string{}
	for _, c := range all {
		if len(out) < 64 && capabilityPattern.MatchString(c) && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

var capabilityPattern = regexp.MustCompile(`^[a-z0-9_]{1,40}$`)

// order returns the host's update order from its channel, or nil if the host should not update.
func order(host id.Host, runs string, r dbq.HostAgentOrderRow) *agentapi.UpdateOrder {
	state := agentapi.UpdateState(r.UpdateState)
	over := r.UpdateVersion == r.Version && r.UpdateTry == r.Try &&
		(state == agentapi.UpdateRefused || state == agentapi.UpdateRolledBack)
	switch {
	case r.Version == "" || r.Version == runs || r.Stopped != "" || over, state == agentapi.UpdateUnmanaged,
		!slices.Contains(r.Capabilities, agentapi.CapSelfUpdate), !staged(host, r.Version, int(r.Percent)):
		return nil
	}
	return &agentapi.UpdateOrder{Version: r.Version, Source: r.Source, Try: int(r.Try)}
}

// staged reports whether host is in the first percent of hosts to get a version. The selection differs for each
// version; raising percent only adds hosts to it.
func staged(host id.Host, version string, percent int) bool {
	u := host.UUID()
	h := sha256.Sum256(append(u[:], version...))
	return int(binary.BigEndian.Uint32(h[:])%100) < percent
}

var (
	channelPattern = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,30}$`)
	// releasePattern matches the release numbers that agents accept.
	releasePattern = regexp.MustCompile(`^v?\d{1,9}\.\d{1,9}\.\d{1,9}(-\d{1,9}-g[0-9a-f]{1,40})?$`)
)

// NewChannel is the new setting of a channel.
type NewChannel struct {
	Name, Version, Source string
	Percent               int
	Again                 bool // hosts that gave the version up try it again
}

// SetChannel sets the version that the hosts of a channel should run, and the percentage of hosts that should run it.
// Only staff may call it. Faults: Forbidden, Invalid.
func (x *Hosts) SetChannel(ctx context.Context, who account.Principal,
	n NewChannel) (out client.AgentChannel, err error) {
	if err := account.RequireStaff(who); err != nil {
		return client.AgentChannel{}, err
	}
	if err := n.check(); err != nil {
		return client.AgentChannel{}, err
	}
	err = x.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		out, err = setChannel(ctx, tx, who, n)
		return err
	})
	return out, err
}

func (n NewChannel) check() error {
	var bad fault.Fields
	if !channelPattern.MatchString(n.Name) || n.Name == OffChannel {
		bad.Add("name", "want 1 to 31 lower-case letters, digits and hyphens, and not %q", OffChannel)
	}
	if !releasePattern.MatchString(n.Version) {
		bad.Add("version", "want a release's number, such as v1.4.0: agents refuse what they cannot compare")
	}
	if !releaseSource(n.Source) {
		bad.Add("source", "want the https address of the folder with SHA256SUMS, SHA256SUMS.sig and the archives")
	}
	if n.Percent < 0 || n.Percent > 100 {
		bad.Add("percent", "want 0 to 100")
	}
	return bad.Err()
}

func setChannel(ctx context.Context, tx *db.Tx, who account.Principal, n NewChannel) (client.AgentChannel, error) {
	old, err := tx.Q.LockAgentChannel(ctx, n.Name)
	if err != nil && !db.NoRows(err) {
		return client.AgentChannel{}, fmt.Errorf("channel %s: %w", n.Name, err)
	}
	again := n.Again || old.Stopped != "" || old.Version != n.Version || old.Source != n.Source
	r, err := tx.Q.PutAgentChannel(ctx, dbq.PutAgentChannelParams{
		Name:      n.Name,
		Version:   n.Version,
		Source:    n.Source,
		Percent:   int32(n.Percent),
		ChangedBy: who.User,
		Again:     again,
	})
	if err != nil {
		return client.AgentChannel{}, fmt.Errorf("channel %s: %w", n.Name, err)
	}
	return channelOf(r), audit.Record(ctx, tx, who.Event("agent_channel.set", n.Name,
		map[string]any{"version": n.Version, "source": n.Source, "percent": n.Percent, "try": r.Try}))
}

// releaseSource reports whether agents may download releases from s: an https address, or an http address on the
// loopback interface.
func releaseSource(s string) bool {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || len(s) > 500 {
		return false
	}
	if a, err := netip.ParseAddr(u.Hostname()); u.Scheme == "http" && err == nil {
		return a.IsLoopback()
	}
	return u.Scheme == "https"
}

// Channels returns all channels, and the number of hosts on each agent version. Only staff may call it. Fault:
// Forbidden.
func (x *Hosts) Channels(ctx context.Context,
	who account.Principal) ([]client.AgentChannel, []client.AgentCount, error) {
	if err := account.RequireStaff(who); err != nil {
		return nil, nil, err
	}
	rows, err := x.db.Q.ListAgentChannels(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("channels: %w", err)
	}
	counts, err := x.db.Q.AgentVersions(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("versions of agents: %w", err)
	}
	channels, hosts := make([]client.AgentChannel, len(rows)), make([]client.AgentCount, len(counts))
	for i, r := range rows {
		channels[i] = channelOf(r)
	}
	for i, r := range counts {
		hosts[i] = client.AgentCount{
			Channel: r.Channel,
			Version: r.AgentVersion,
			State:   r.UpdateState,
			Update:  r.UpdateVersion,
			Hosts:   r.Hosts,
		}
	}
	return channels, hosts, nil
}

func channelOf(r dbq.AgentChannel) client.AgentChannel {
	return client.AgentChannel{
		Name:      r.Name,
		Version:   r.Version,
		Source:    r.Source,
		Percent:   int(r.Percent),
		Try:       int(r.Try),
		Stopped:   r.Stopped,
		ChangedAt: r.ChangedAt.UTC(),
	}
}

// followChannel assigns one of the organisation's hosts to a channel. With OffChannel, the operator updates the agent
// by hand.
func followChannel(ctx context.Context, tx *db.Tx, org id.Org, host id.Host, channel string) error {
	if _, err := lockOwn(ctx, tx, org, host); err != nil {
		return err
	}
	if channel != StableChannel && channel != OffChannel {
		if _, err := tx.Q.LockAgentChannel(ctx, channel); db.NoRows(err) {
			return fault.InvalidField("agent_channel", "there is no channel %q; %s and %s there are always",
				text.Clip(channel, 40), StableChannel, OffChannel)
		} else if err != nil {
			return fmt.Errorf("channel %s: %w", channel, err)
		}
	}
	if err := tx.Q.SetHostChannel(ctx, host, channel); err != nil {
		return fmt.Errorf("channel of %s: %w", host, err)
	}
	return nil
}
