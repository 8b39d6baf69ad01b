package hostlink

import (
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Limits of one report, far above what a real host reports.
const (
	maxLeases    = 256
	maxHealth    = 256
	maxLayers    = 256
	maxEndpoints = 16
	maxPeersDown = 4096
	maxDetail    = 500
	maxText      = 200

	maxCapabilities = 64
)

// checkSync rejects reports that our agent would not send, and truncates texts for display.
func checkSync(s *agentapi.Sync) error {
	switch {
	case s.Protocol > agentapi.Protocol:
		return fmt.Errorf("the agent speaks protocol %d and this server at most %d: upgrade the server first", s.Protocol,
			agentapi.Protocol)
	case s.Protocol < 0:
		return errors.New("protocol out of range")
	} // older protocols are accepted: such a host keeps its leases, but gets no new ones
	switch {
	case s.BootID == "" || len(s.BootID) > 64 || s.BootMS < 0:
		return errors.New("boot id or clock out of range")
	case s.Revision < 0 || s.ControlEpoch < 0 || s.Seq > 1<<62:
		return errors.New("revision, epoch or seq out of range")
	case len(s.Capabilities) > maxCapabilities:
		return errors.New("too many capabilities")
	case s.Pulled != nil && (s.Pulled.Counter == "" || len(s.Pulled.Counter) > 64 || s.Pulled.Bytes < 0):
		return errors.New("count of pulls out of range")
	case len(s.Leases) > maxLeases || len(s.Segments) > agentapi.MaxSegments || len(s.Health) > maxHealth:
		return errors.New("too many leases, segments or health events in one sync")
	}
	for i := range s.Leases {
		if err := checkStatus(&s.Leases[i]); err != nil {
			return fmt.Errorf("leases[%d]: %w", i, err)
		}
	}
	return nil
}

var nodeStates = map[agentapi.NodeState]bool{
	agentapi.NodePulling: true, agentapi.NodeStarting: true, agentapi.NodeJoining: true, agentapi.NodeReady: true,
	agentapi.NodeStopping: true, agentapi.NodeStopped: true, agentapi.NodeFailed: true,
}

func checkStatus(l *agentapi.LeaseStatus) error {
	if _, err := id.Parse[id.Lease](l.Lease); err != nil {
		return err
	}
	switch {
	case l.Epoch < 1 || l.Epoch > 1<<30:
		return errors.New("epoch out of range")
	case !nodeStates[l.State]:
		return fmt.Errorf("unknown state %q", text.Clip(string(l.State), 20))
	case len(l.Reason) > 64 || len(l.WGKey) > 64 || len(l.ImageDigest) > 100:
		return errors.New("reason, key or digest too long")
	case len(l.Endpoints) > maxEndpoints || len(l.PeersDown) > maxPeersDown || len(l.Progress.Layers) > maxLayers:
		return errors.New("too many endpoints, peers or layers")
	case len(l.PeersDownSince) > maxPeersDown || l.GoodSinceBootMS < 0:
		return errors.New("too many silent peers, or the time since when it is good is out of range")
	case l.Preflight != nil && (len(l.Preflight.RTTMicros) > maxPeersDown || len(l.Preflight.PairGbps) > maxPeersDown):
		return errors.New("too many peers in preflight")
	}
	if t := l.Traffic; t != nil && min(t.Opened, t.Refused, t.Up, t.Down, t.OverlayUp, t.OverlayDown, t.RanksSent,
		t.RanksReceived) < 0 {
		return errors.New("traffic out of range")
	}
	if l.OwnerMB < 0 || l.OwnerMB > 1<<32 {
		return errors.New("owner's memory out of range")
	}
	for _, e := range l.Endpoints {
		if len(e) > 100 {
			return errors.New("endpoint too long")
		}
	}
	for _, p := range l.PeersDownSince {
		if p.Rank < 0 || p.SinceBootMS < 0 {
			return errors.New("a silent peer is out of range")
		}
	}
	l.Detail = text.Clip(l.Detail, maxDetail)
	l.Progress.Step = text.Clip(l.Progress.Step, maxText)
	l.Progress.WaitingFor = text.Clip(l.Progress.WaitingFor, maxText)
	if l.Preflight != nil {
		l.Preflight.Detail = text.Clip(l.Preflight.Detail, maxDetail)
	}
	return nil
}
