package cluster

import (
	"context"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/notify"
)

// notifyScratch tells the operator of a node's host that the node failed for want of scratch space, once a day: the
// host goes on being rented, and each node that asks for scratch would fail there. detail is the host's own word.
func (x *lockedCluster) notifyScratch(n *node, detail string) {
	at := x.now.UTC()
	x.addWrite(func(ctx context.Context, w *writer) error {
		h, err := host.Read(ctx, w.tx.Q, n.HostID)
		if err != nil {
			return err
		}
		added, err := notify.Add(ctx, w.tx, notify.Notice{
			Org:      h.Org,
			Key:      fmt.Sprintf("scratch_failed:%s:%s", h.ID, at.Format(time.DateOnly)),
			Severity: notify.Bad,
			Object:   h.ID.String(),
			Title:    fmt.Sprintf("%s failed a node that asked for scratch", h.Name),
			Body: join("A node that was rented with scratch space failed there at "+at.Format("15:04:05")+
				" UTC and earns nothing from then on.",
				detail) + " Nodes without scratch are not concerned. `muster-agent doctor` on the host says what is to be " +
				"mended; an agent that runs without --scratch-dir offers no scratch. Further failures of today are not told.",
		})
		if err == nil && added {
			w.tx.AfterCommit(func() { w.c.bus.Changed(bus.TopicOrg(h.Org)) })
		}
		return err
	})
}
