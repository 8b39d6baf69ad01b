package ingest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

const (
	segmentMS = 300_000
	bootAt    = 50_000_000 // the hosts' boot clock at the beginning, ms
	boot      = "3f0c6a52-7c4e-4b58-9a7c-2d2f4f7f9c11"
	rate      = money.Micro(2_000_000)
)

// world is running clusters of two nodes, each node a lease of one GPU; every GPU of every host is rented. Their
// windows have been open for a day and are confirmed up to now.
type world struct {
	hosts  []platform.Host
	leases [][]id.Lease // by host
	begin  int64        // unix ms
}

// fill writes the world.
func (w *world) fill(ctx context.Context, d *db.DB, hosts int) (err error) {
	if w.hosts, err = platform.AddFleet(ctx, d, platform.Fleet{Hosts: hosts, Operators: 20}); err != nil {
		return err
	}
	renters, err := platform.AddRenters(ctx, d, 50, money.Unit)
	if err != nil {
		return err
	}
	w.begin = time.Now().Add(-24 * time.Hour).UnixMilli()
	w.leases = make([][]id.Lease, hosts)
	var leases []metering.NewLease
	var holds []ledger.Entry
	b := &pgx.Batch{}
	for n := range hosts * platform.GPUsPerHost / 2 {
		cluster, renter := id.New[id.Cluster](), renters[n%len(renters)].Org
		for rank := range 2 {
			at := (2*n + rank) % hosts // a cluster is on two hosts
			h := &w.hosts[at]
			l := metering.NewLease{
				ID:           id.New[id.Lease](),
				Cluster:      cluster,
				Node:         id.New[id.Node](),
				Rank:         rank,
				Host:         h.ID,
				Renter:       renter,
				Operator:     h.Operator,
				GPUModel:     "H100",
				GPUs:         h.GPUs[len(w.leases[at]):][:1],
				CPUs:         24,
				RAMMB:        240_000,
				DiskGB:       100,
				Currency:     platform.Currency,
				HostSharePPM: 850_000,
				Epoch:        1,
				Rate:         rate,
				Items:        []metering.PriceItem{{Label: "1 × H100", Quantity: 1, Unit: "gpu", UnitRate: rate, Rate: rate}},
			}
			leases, w.leases[at] = append(leases, l), append(w.leases[at], l.ID)
		}
		holds = append(holds, ledger.Entry{
			Kind: "topup",
			Key:  "topup:" + cluster.String(),
			Transfers: []ledger.Transfer{
				{
					Debit:  ledger.StripeClearing(platform.Currency),
					Credit: ledger.Hold(renter, cluster, platform.Currency),
					Amount: 1000 * money.Unit,
				}},
		})
		b.Queue("INSERT INTO cluster_window (cluster_id, n, opened_ms, confirmed_until_ms) VALUES ($1, 1, $2, $3)", cluster,
			w.begin, time.Now().UnixMilli())
	}
	b.Queue("UPDATE lease SET created_at = to_timestamp($1::bigint / 1000.0 - 60), run_until = clock_timestamp() + "+
		"interval '1 hour'", w.begin)
	for _, h := range w.hosts {
		b.Queue("INSERT INTO time_anchor (host_id, boot_id, number, boot_ms, server_ms) VALUES ($1, $2, 1, $3, $4)", h.ID,
			boot, bootAt, w.begin)
	}
	parents := &pgx.Batch{}
	for _, l := range leases {
		parents.Queue(`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node,
			rate, currency) VALUES ($1, $2, $2, $1::uuid::text, '{}', 'i', 'running', 2, 1, 1, $3) ON CONFLICT (id) DO NOTHING`,
			l.Cluster, l.Renter, l.Currency)
		parents.Queue(`INSERT INTO node (id, cluster_id, rank, host_id, lease_id, epoch, state, address)
			VALUES ($1, $2, $3, $4, $5, 1, 'ready', '10.0.0.1')`, l.Node, l.Cluster, l.Rank, l.Host, l.ID)
	}
	return d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
		if err := tx.SendBatch(ctx, parents).Close(); err != nil {
			return err
		}
		if err := metering.CreateLeases(ctx, tx, leases); err != nil {
			return err
		}
		if _, err := ledger.PostAll(ctx, tx, holds); err != nil {
			return err
		}
		return tx.SendBatch(ctx, b).Close()
	})
}

// report is one host's sync with its segments, as it comes over the link.
type report struct {
	host id.Host
	json []byte
	// What json holds: for the baseline.
	segs      []agentapi.Segment
	signature []byte // of the list; nil: each is signed alone
}

// reports are the syncs of all hosts in which each lease sends its segments from number first on, so many at a time.
// With alone they are as agents send them that do not sign lists.
func (w *world) reports(first, count int, alone bool) ([]report, error) {
	out := make([]report, len(w.hosts))
	for i, h := range w.hosts {
		r := report{host: h.ID}
		for _, l := range w.leases[i] {
			for k := range count {
				r.segs = append(r.segs, w.segment(&h, l, int64(first+k)))
			}
		}
		if !alone {
			r.signature = agentapi.SignBatch(h.ID.String(), r.segs, h.Key)
		}
		var err error
		if r.json, err = json.Marshal(agentapi.Sync{
			BootID:            boot,
			BootMS:            bootAt,
			Segments:          r.segs,
			SegmentsSignature: r.signature,
		}); err != nil {
			return nil, err
		}
		out[i] = r
	}
	return out, nil
}

func (w *world) segment(h *platform.Host, l id.Lease, n int64) agentapi.Segment {
	s := agentapi.Segment{
		Lease: l.String(), Epoch: 1, BootID: boot, Seq: n + 1, Anchor: 1, BootEndMS: bootAt + (n+1)*segmentMS,
		StartMS: w.begin + n*segmentMS, EndMS: w.begin + (n+1)*segmentMS, EnergyMJ: 210_000_000,
	}
	s.Sign(h.ID.String(), h.Key)
	return s
}

// check makes sure that the measured work was done: no lease has a step that is not posted. Then it ends all
// windows, as a suspension does, and checks that the ledger holds what the segments prove.
func check(ctx context.Context, d *db.DB, segments int) error {
	var stored, behind int
	err := d.Pool.QueryRow(ctx, "SELECT (SELECT count(*) FROM usage_segment), (SELECT count(*) FROM lease_meter WHERE "+
		"billed_ms - posted_billed_ms >= least(greatest(posted_billed_ms / 4, $1), 4 * $1))",
		3*segmentMS).Scan(&stored, &behind)
	if err != nil {
		return err
	}
	if stored != segments || behind > 0 {
		return fmt.Errorf("%d segments stored, want %d; %d leases are not booked", stored, segments, behind)
	}
	if err := closeAll(ctx, d); err != nil {
		return err
	}
	var billed int64
	if err := d.Pool.QueryRow(ctx, "SELECT sum(posted_billed_ms)::bigint FROM lease_meter").Scan(&billed); err != nil {
		return err
	}
	if billed != int64(segments)*segmentMS {
		return fmt.Errorf("%d ms billed, want %d", billed, int64(segments)*segmentMS)
	}
	b, err := ledger.CheckAll(ctx, d)
	if err == nil && !b.Balanced() {
		err = fmt.Errorf("the ledger does not balance: %v", b.Problems)
	}
	return err
}

// closeAll closes the windows of all clusters where they are confirmed.
func closeAll(ctx context.Context, d *db.DB) error {
	rows, err := d.Pool.Query(ctx, "SELECT cluster_id FROM cluster_window")
	if err != nil {
		return err
	}
	clusters, err := pgx.CollectRows(rows, pgx.RowTo[id.Cluster])
	if err != nil {
		return err
	}
	for _, c := range clusters {
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			if _, err := metering.CloseWindow(ctx, tx, c, time.Time{}); err != nil {
				return err
			}
			return metering.Post(ctx, tx, c)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
