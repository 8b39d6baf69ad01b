package hostlink

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// Limits of one report, far above what a real host reports.
const (
	maxLeases    = 4096
	maxHealth    = 256
	maxLayers    = 256
	maxEndpoints = 16
	maxPeersDown = 4096
	maxDetail    = 500
	maxText      = 200

	maxCapabilities = 64

	maxBootMS  = 100 * 366 * 24 * 3600 * 1000 // the longest time since a boot: keeps times within PostgreSQL's
	maxTraffic = 1 << 55                      // bytes or packets of one run: keeps sums within 64 bits
)

// readSync decodes and checks a host's report. A part that cannot be used costs only that part: a renter, an image or a
// driver may have chosen what it contains. refused names those parts and the reasons; err refuses the whole report.
func readSync(m *nats.Msg) (s agentapi.Sync, refused, err error) {
	if err = read(m, &s); err == nil {
		refused, err = checkSync(&s)
		return s, refused, err
	}
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return s, nil, errMalformed
	}
	s, refused, err = readParts(m)
	if err != nil {
		return s, nil, errMalformed
	}
	more, err := checkSync(&s)
	return s, errors.Join(refused, more), err
}

// readParts decodes a report in which a value has a wrong type or is too large for its field. Leases with such values
// are only listed; segments and health events with such values are left out.
func readParts(m *nats.Msg) (s agentapi.Sync, refused, err error) {
	var parts struct {
		agentapi.Sync
		Leases   []json.RawMessage `json:"leases"`
		Segments []json.RawMessage `json:"segments"`
		Health   []json.RawMessage `json:"health"`
	}
	if err := read(m, &parts); err != nil {
		return s, nil, err
	}
	s = parts.Sync
	var wrong []error
	for i, item := range parts.Leases {
		var l agentapi.LeaseStatus
		if err := decode(item, &l); err != nil {
			wrong, l = append(wrong, fmt.Errorf("leases[%d]: %w", i, err)), onlyListed(l)
		}
		s.Leases = append(s.Leases, l)
	}
	for i, item := range parts.Segments {
		var v agentapi.Segment
		if err := decode(item, &v); err != nil {
			wrong, s.SegmentsSignature = append(wrong, fmt.Errorf("segments[%d]: %w", i, err)), nil // it covers all segments
			continue
		}
		s.Segments = append(s.Segments, v)
	}
	for i, item := range parts.Health {
		var v agentapi.HealthEvent
		if err := decode(item, &v); err != nil {
			wrong = append(wrong, fmt.Errorf("health[%d]: %w", i, err))
			continue
		}
		s.Health = append(s.Health, v)
	}
	return s, errors.Join(wrong...), nil
}

// onlyListed returns a status that says nothing of a lease but that something of it is on the host. A lease that was
// left out instead would count as gone.
func onlyListed(l agentapi.LeaseStatus) agentapi.LeaseStatus {
	return agentapi.LeaseStatus{LeaseRef: agentapi.LeaseRef{Lease: l.Lease}}
}

// checkSync checks a report, and shortens what is too long. A lease that our agent would not report so is only listed;
// refused names such leases and the reasons. err refuses the whole report: what it says of the host itself cannot be.
func checkSync(s *agentapi.Sync) (refused, err error) {
	switch {
	case s.Protocol > agentapi.Protocol:
		return nil, fmt.Errorf("the agent speaks protocol %d and this server at most %d: upgrade the server first",
			s.Protocol, agentapi.Protocol)
	case s.Protocol < 0:
		return nil, errors.New("protocol out of range")
	} // older protocols are accepted: such a host keeps its leases, but gets no new ones
	switch {
	case s.BootID == "" || len(s.BootID) > 64 || s.BootMS < 0 || s.BootMS > maxBootMS:
		return nil, errors.New("boot id or clock out of range")
	case s.Revision < 0 || s.ControlEpoch < 0 || s.Seq > 1<<62:
		return nil, errors.New("revision, epoch or seq out of range")
	case s.Pulled != nil && (s.Pulled.Counter == "" || len(s.Pulled.Counter) > 64 || s.Pulled.Bytes < 0 ||
		s.Pulled.Bytes > maxTraffic):
		return nil, errors.New("count of pulls out of range")
	}
	s.Capabilities = s.Capabilities[:min(len(s.Capabilities), maxCapabilities)]
	s.Shared = s.Shared[:min(len(s.Shared), agentapi.MaxSharedUse)]
	s.Health = s.Health[:min(len(s.Health), maxHealth)] // the host sends the others again
	s.Requalified = s.Requalified[:min(len(s.Requalified), maxHealth)]
	if len(s.Segments) > agentapi.MaxSegments {
		s.Segments, s.SegmentsSignature = s.Segments[:agentapi.MaxSegments], nil // it covers all segments
	}
	var wrong []error
	if n := len(s.Leases); n > maxLeases {
		wrong = append(wrong, fmt.Errorf("%d leases: only the first %d are read", n, maxLeases))
		s.Leases, s.Full = s.Leases[:maxLeases], false
	}
	known := s.Leases[:0]
	for i, l := range s.Leases {
		if _, err := id.Parse[id.Lease](l.Lease); err != nil {
			wrong = append(wrong, fmt.Errorf("leases[%d]: %w", i, err))
			continue // no lease of this platform has such a name
		}
		if err := checkStatus(&l); err != nil {
			wrong, l = append(wrong, fmt.Errorf("leases[%d], %s: %w", i, l.Lease, err)), onlyListed(l)
		}
		known = append(known, l)
	}
	s.Leases = known
	return errors.Join(wrong...), nil
}

var nodeStates = map[agentapi.NodeState]bool{
	agentapi.NodePulling: true, agentapi.NodeStarting: true, agentapi.NodeJoining: true, agentapi.NodeReady: true,
	agentapi.NodeStopping: true, agentapi.NodeStopped: true, agentapi.NodeFailed: true,
	"": true, // of a lease that is only listed
}

// checkStatus rejects the status of a lease that no agent reports, and shortens texts and lists.
func checkStatus(l *agentapi.LeaseStatus) error {
	switch {
	case l.Epoch < 0 || l.Epoch > 1<<30 || l.Epoch == 0 && l.State != "":
		return errors.New("epoch out of range")
	case !nodeStates[l.State]:
		return fmt.Errorf("unknown state %q", text.Clip(string(l.State), 20))
	case min(l.StartBootMS, l.ExitBootMS, l.GoodSinceBootMS) < 0 ||
		max(l.StartBootMS, l.ExitBootMS, l.GoodSinceBootMS) > maxBootMS:
		return errors.New("a time is out of range")
	case l.OwnerMB < 0 || l.OwnerMB > 1<<32:
		return errors.New("owner's memory out of range")
	}
	if t := l.Traffic; t != nil && (min(t.Opened, t.Refused, t.Up, t.Down, t.OverlayUp, t.OverlayDown, t.RanksSent,
		t.RanksReceived) < 0 || max(t.Opened, t.Refused, t.Up, t.Down, t.OverlayUp, t.OverlayDown, t.RanksSent,
		t.RanksReceived) > maxTraffic) {
		return errors.New("traffic out of range")
	}
	for _, p := range l.PeersDownSince {
		if p.Rank < 0 || p.SinceBootMS < 0 || p.SinceBootMS > maxBootMS {
			return errors.New("a silent peer is out of range")
		}
	}
	if len(l.WGKey) > 64 {
		l.WGKey = ""
	}
	if len(l.ImageDigest) > 100 {
		l.ImageDigest = ""
	}
	l.Reason, l.Trouble = text.Clip(l.Reason, 64), text.Clip(l.Trouble, 64)
	l.Detail, l.TroubleDetail = text.Clip(l.Detail, maxDetail), text.Clip(l.TroubleDetail, maxDetail)
	l.Leaving = text.Clip(text.OneLine(l.Leaving), agentapi.MaxLeaving)
	l.PeersDown = l.PeersDown[:min(len(l.PeersDown), maxPeersDown)]
	l.PeersDownSince = l.PeersDownSince[:min(len(l.PeersDownSince), maxPeersDown)]
	l.Endpoints = l.Endpoints[:min(len(l.Endpoints), maxEndpoints)]
	l.Paths = l.Paths[:min(len(l.Paths), maxPeersDown)]
	l.Progress.Layers = l.Progress.Layers[:min(len(l.Progress.Layers), maxLayers)]
	l.Progress.Step = text.Clip(l.Progress.Step, maxText)
	l.Progress.WaitingFor = text.Clip(l.Progress.WaitingFor, maxText)
	if p := l.Preflight; p != nil {
		p.Detail = text.Clip(p.Detail, maxDetail)
		p.RTTMicros = p.RTTMicros[:min(len(p.RTTMicros), maxPeersDown)]
		p.PairGbps = p.PairGbps[:min(len(p.PairGbps), maxPeersDown)]
	}
	return checkUploads(l)
}

// maxNotUploaded is how many buckets a lease can have.
const maxNotUploaded = 16

// checkUploads limits what a host reports of a lease's buckets.
func checkUploads(l *agentapi.LeaseStatus) error {
	outside := func(u agentapi.Uploads) bool { return u.Files < 0 || u.Files > 1<<40 || u.Bytes < 0 || u.Bytes > 1<<60 }
	if u := l.Progress.Uploads; u != nil {
		if outside(*u) {
			return errors.New("uploads out of range")
		}
		u.Problem = text.Clip(text.OneLine(u.Problem), maxText)
	}
	l.NotUploaded = l.NotUploaded[:min(len(l.NotUploaded), maxNotUploaded)]
	for i := range l.NotUploaded {
		n := &l.NotUploaded[i]
		if outside(n.Uploads) {
			return errors.New("what is not uploaded is out of range")
		}
		n.Problem = "" // Detail says it
		n.Name, n.Detail = text.Clip(text.OneLine(n.Name), 63), text.Clip(text.OneLine(n.Detail), maxText)
	}
	return nil
}
