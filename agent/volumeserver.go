package agent

import (
	"context"
	"errors"

	"github.com/musterhq/muster/agent/workload/journal"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
)

// volumeServer passes requests of the processes for volumes to the control plane.
type volumeServer struct {
	link    Link
	journal *journal.Journal
	bootMS  func() int64
}

// send passes a request to the control plane. Moments are on the clock of the host's
// boot there.
func (s *volumeServer) send(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error) {
	if q.Commit != nil || q.Prepare != nil {
		anchor, ok := s.journal.Anchor()
		if !ok {
			return agentapi.VolumeReply{}, fault.New(fault.Unavailable, "the server's clock is not known yet")
		}
		if q.Commit != nil {
			c := *q.Commit
			c.CutAtMS = anchor.At(c.CutAtMS)
			q.Commit = &c
		}
		if q.Prepare != nil {
			p := *q.Prepare
			p.CutAtMS = anchor.At(p.CutAtMS)
			q.Prepare = &p
		}
	}
	reply, err := s.link.Volume(ctx, q)
	var refused *agentapi.VolumeError
	var many *agentapi.TooMany
	switch {
	case errors.As(err, &refused):
		return agentapi.VolumeReply{Error: refused}, nil
	case errors.As(err, &many):
		return agentapi.VolumeReply{AckError: "too many requests", RetryMS: max(1, many.Wait.Milliseconds())}, nil
	}
	return reply, err
}
