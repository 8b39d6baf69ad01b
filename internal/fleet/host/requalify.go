package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// RequalifyResult is the last request to reset a GPU and check it.
type RequalifyResult struct {
	RequestedAt time.Time
	FinishedAt  *time.Time // nil = the host has not reported a result
	Failure     string     // why it could not be done; "" = it was, or the host has not reported
}

// String describes the request in a few words.
func (r RequalifyResult) String() string {
	switch {
	case r.FinishedAt == nil:
		return "reset and check requested at " + r.RequestedAt.UTC().Format("2006-01-02 15:04 UTC")
	case r.Failure != "":
		return "not put back into service at " + r.FinishedAt.UTC().Format("2006-01-02 15:04 UTC") + ": " + r.Failure
	}
	return "reset and checked at " + r.FinishedAt.UTC().Format("2006-01-02 15:04 UTC")
}

// mayRequalify returns the reason for which a GPU cannot be reset now, or nil.
func mayRequalify(g GPU, capabilities []string) error {
	switch {
	case !slices.Contains(capabilities, agentapi.CapRequalify):
		return fault.New(fault.Conflict, "The host's agent is too old for this. Update it, or run on the host: sudo "+
			"muster-agent gpu requalify %s", g.UUID)
	case !g.Present:
		return fault.New(fault.Conflict, "The host does not list the GPU at present.")
	case g.Health == Healthy:
		return fault.New(fault.Conflict, "The GPU is healthy.")
	case g.Claim != "":
		return fault.New(fault.Conflict, "The GPU is in use (%s): it can be reset when that has ended.", g.Claim)
	}
	return nil
}

// requalify asks the host to reset a GPU, check it and put it back into service. A request that waits stays as it is.
func (x *Hosts) requalify(ctx context.Context, tx *db.Tx, who account.Principal, h Host, uuid string) error {
	gpus, err := listGPUs(ctx, tx.Q, []id.Host{h.ID}, false)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(gpus, func(g GPU) bool { return g.UUID == uuid })
	if i < 0 {
		return fault.InvalidField("gpu", "the host has no GPU %s", text.Clip(uuid, 60))
	}
	agent, err := tx.Q.HostAgentOrder(ctx, h.ID)
	if err != nil {
		return fmt.Errorf("agent of %s: %w", h.ID, err)
	}
	if err := mayRequalify(gpus[i], agent.Capabilities); err != nil {
		return err
	}
	if err := tx.Q.RequestRequalify(ctx, gpus[i].ID, h.ID); err != nil {
		return fmt.Errorf("request to requalify %s: %w", uuid, err)
	}
	batch := &pgx.Batch{}
	QueueRevision(batch, tx, x.bus, []id.Host{h.ID})
	if err := tx.Send(ctx, batch); err != nil {
		return fmt.Errorf("raise the revision of %s: %w", h.ID, err)
	}
	publish(tx, x.bus, h)
	return audit.Record(ctx, tx, who.Event("gpu.requalify", h.ID.String(), map[string]any{"gpu": uuid}))
}

// requalifies returns the last request of each GPU of a host that had one.
func requalifies(ctx context.Context, q *dbq.Queries, host id.Host) (map[id.GPU]RequalifyResult, error) {
	rows, err := q.RequalifiesOf(ctx, host)
	if err != nil {
		return nil, fmt.Errorf("requests to requalify GPUs of %s: %w", host, err)
	}
	out := map[id.GPU]RequalifyResult{}
	for _, r := range rows {
		out[r.GPUID] = RequalifyResult{RequestedAt: r.RequestedAt, FinishedAt: r.FinishedAt, Failure: r.Failure}
	}
	return out, nil
}

// QueueRequalifies queues the read of the requests that wait for the host, as its desired state contains them.
func QueueRequalifies(b *pgx.Batch, host id.Host, into *[]agentapi.GPUOrder) {
	db.Queue(b, func(ctx context.Context, q *dbq.Queries) error {
		rows, err := q.WaitingRequalify(ctx, host)
		*into = nil
		for _, r := range rows {
			*into = append(*into, agentapi.GPUOrder{GPU: r.UUID, Number: r.Number})
		}
		return err
	})
}

// RecordRequalified stores the results of requests that a host reports. Results of unknown or finished requests are
// dropped: the host need not send them again.
func (a *Agents) RecordRequalified(ctx context.Context, host id.Host, results []agentapi.GPUResult) error {
	results = slices.SortedFunc(slices.Values(results), func(x, y agentapi.GPUResult) int {
		return cmp.Compare(x.GPU, y.GPU)
	})
	return a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		for _, r := range results {
			failure := text.Clip(text.OneLine(r.Error), 500)
			_, err := tx.Q.FinishRequalify(ctx, dbq.FinishRequalifyParams{
				Failure: failure, HostID: host, UUID: r.GPU, Number: r.Number,
			})
			if err != nil {
				return fmt.Errorf("result of %s: %w", r.GPU, err)
			}
		}
		tx.AfterCommit(func() { a.bus.Changed(bus.TopicHost(host)) })
		return nil
	})
}
