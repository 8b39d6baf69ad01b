package host

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// RecordHealth stores health events of the host's GPUs, each once, and sets the GPUs' health to that of their latest
// event. s contains the boot id and the boot clock. RecordHealth returns the highest event number that the host need
// not send again; events of unknown GPUs or with unknown states are dropped and count as stored.
func (a *Agents) RecordHealth(ctx context.Context, host id.Host, s agentapi.Sync) (last uint64, err error) {
	events := slices.SortedFunc(slices.Values(s.Health), func(a, b agentapi.HealthEvent) int {
		return cmp.Compare(a.Seq, b.Seq)
	})
	err = a.db.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		now, err := tx.Now(ctx)
		if err != nil {
			return err
		}
		gpus, err := GPUsByUUID(ctx, tx.Q, host)
		if err != nil {
			return err
		}
		touched := map[id.GPU]bool{}
		for _, e := range events {
			last = e.Seq
			gpu, known := gpus[e.GPU]
			if _, ok := badness[e.State]; !ok || !known || e.Seq == 0 || e.Seq > 1<<62 {
				continue
			}
			detail := text.OneLine(strings.ToValidUTF8(e.Detail, "\uFFFD"))
			if e.Kind == kindDegraded && detail == "" {
				detail = "reason unknown"
			}
			n, err := tx.Q.InsertGPUHealth(ctx, dbq.InsertGPUHealthParams{
				GPUID: gpu, Seq: int64(e.Seq), Kind: text.Clip(e.Kind, 40), Xid: int32(e.Xid), Detail: text.Clip(detail, 500),
				State: e.State, At: eventTime(now, &s, &e), Vendor: cmp.Or(text.Clip(e.Vendor, 20), agentapi.NVIDIA),
				Code: text.Clip(text.OneLine(strings.ToValidUTF8(eventCode(&e), "\uFFFD")), 40),
			})
			if err != nil {
				return fmt.Errorf("health of %s: %w", e.GPU, err)
			}
			if n > 0 {
				touched[gpu] = true
			}
		}
		if err := updateHealth(ctx, tx, touched); err != nil {
			return err
		}
		tx.AfterCommit(func() { a.bus.Changed(bus.TopicHost(host)) })
		_, err = tx.Q.RaiseHealthSeq(ctx, int64(min(last, 1<<62)), host)
		return err
	})
	if err != nil {
		return 0, err
	}
	return last, nil
}

// kindDegraded is the kind of events of GPUs that work, but slower than they could. Such events, and those of kind
// "restored", do not change a GPU's health.
const kindDegraded = "degraded"

// updateHealth sets each GPU's health, and whether it is degraded, to those of its latest events by number, which need
// not be the last to arrive.
func updateHealth(ctx context.Context, tx *db.Tx, touched map[id.GPU]bool) error {
	order := make([]id.GPU, 0, len(touched))
	for g := range touched {
		order = append(order, g)
	}
	slices.SortFunc(order, id.GPU.Compare)
	for _, g := range order {
		if err := tx.Q.SetGPUDegraded(ctx, g); err != nil {
			return fmt.Errorf("speed of %s: %w", g, err)
		}
		e, err := tx.Q.LatestGPUHealth(ctx, g)
		if db.NoRows(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("health of %s: %w", g, err)
		}
		reason := ""
		if e.State != Healthy {
			reason = e.Kind
			if e.Detail != "" {
				reason += ": " + e.Detail
			}
		}
		if err := tx.Q.SetGPUHealth(ctx, e.State, text.Clip(reason, 300), g); err != nil {
			return fmt.Errorf("health of %s: %w", g, err)
		}
	}
	return nil
}

// eventTime converts an event's time to PostgreSQL's clock. It uses the event's age on the boot clock if the event and
// the report are from the same boot, else the present time.
func eventTime(now time.Time, s *agentapi.Sync, e *agentapi.HealthEvent) time.Time {
	const longest = 400 * 24 * 3600 * 1000
	if ago := s.BootMS - e.BootMS; e.BootID == s.BootID && ago >= 0 && ago < longest {
		return now.Add(-time.Duration(ago) * time.Millisecond)
	}
	return now
}

// eventCode returns the vendor's name of what an event is about. An older agent reports an Xid alone.
func eventCode(e *agentapi.HealthEvent) string {
	if e.Code == "" && e.Xid != 0 {
		return "xid-" + strconv.Itoa(e.Xid)
	}
	return e.Code
}

// GPUs returns the ids of the host's GPUs by their NVML UUIDs.
func (a *Agents) GPUs(ctx context.Context, host id.Host) (map[string]id.GPU, error) {
	return GPUsByUUID(ctx, a.db.Q, host)
}

// GPUsByUUID returns the ids of the host's GPUs by their NVML UUIDs.
func GPUsByUUID(ctx context.Context, q *dbq.Queries, host id.Host) (map[string]id.GPU, error) {
	rows, err := q.ActiveGPUs(ctx, id.UUIDs(host))
	if err != nil {
		return nil, fmt.Errorf("GPUs of %s: %w", host, err)
	}
	out := make(map[string]id.GPU, len(rows))
	for _, g := range rows {
		out[g.UUID] = g.ID
	}
	return out, nil
}
