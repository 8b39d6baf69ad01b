package hostlink

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// handleVolume answers a host's request about a volume of one of its leases. The request and the reply contain signed
// URLs and are never logged.
func (l *Link) handleVolume(ctx context.Context, h id.Host, m *nats.Msg) {
	var r agentapi.VolumeRequest
	if err := read(m, &r); err != nil {
		l.answer(h, m, agentapi.VolumeReply{Error: &agentapi.VolumeError{
			Code: agentapi.VolumeMalformed, Message: errMalformed.Error(),
		}})
		return
	}
	if l.volumes == nil {
		l.answer(h, m, agentapi.VolumeReply{Error: &agentapi.VolumeError{
			Code: agentapi.VolumeNotFound, Message: "this platform has no volumes",
		}})
		return
	}
	l.answer(h, m, l.volumes.Serve(ctx, h, r))
}
