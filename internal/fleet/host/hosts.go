package host

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// GPU is one GPU of a host.
type GPU struct {
	ID         id.GPU
	Host       id.Host
	UUID       string // its vendor's
	Index      int
	Model      string
	Arch       string
	VRAMMB     int64
	ComputeCap string
	PCIeGen    int
	NVLink     bool
	NVLinkGbps float64 // one direction, all active links
	// BusbwNVLink is what it sent over NVLink while the host's others of its model did the same, in Gbit/s, measured at
	// BusbwNVLinkAt; 0 = not measured.
	BusbwNVLink   float64
	BusbwNVLinkAt time.Time
	// Power limit and default power limit in watts; 0 = not known.
	PowerLimitW, PowerDefaultW int

	// Vendor and Kind are agentapi's constants; Parent is the UUID of the GPU that a slice is part of, AttachName the
	// device's name in CDI, ROCmMax the newest ROCm that its driver runs.
	Vendor, Kind, Parent, AttachName, ROCmMax string

	Health       string // healthy, suspect, quarantined
	HealthReason string
	// Degraded is why the GPU, which works, is slower than it could be, and DegradedSince from when on; "" = it is not.
	Degraded      string
	DegradedSince time.Time
	InUse         string    // use by the host itself, such as "Xorg, 412 MiB"; such a GPU is not offered; "" = none
	Present       bool      // listed in the last inventory
	Claim         ClaimKind // purpose of its claim; "" = free
	Contest       Contest   // status if hosts of other organisations list its UUID
	// ContestDecided reports whether staff decided whose the contested GPU is.
	ContestDecided bool
	Facts          agentapi.GPU
}

// SlowerThanUsual describes why the GPU is degraded, and since when; "" if it is not.
func (g *GPU) SlowerThanUsual() string {
	if g.Degraded == "" {
		return ""
	}
	return g.Degraded + " since " + g.DegradedSince.Format("2006-01-02 15:04 UTC")
}

// Detail is a host with everything that its operator may see.
type Detail struct {
	Host
	FabricName string
	GPUs       []GPU              // sorted by index
	Inventory  agentapi.Inventory // empty in lists
	// Requalify has the last request to reset and check a GPU, of each that had one; nil in lists.
	Requalify map[id.GPU]RequalifyResult
	RDMA      *MeasuredRDMA // nil in lists, and if nothing was measured lately
}

// MeasuredRDMA is what clusters measured with NCCL over a host's RDMA ports: all-reduce over so many hosts, and between
// the host's own GPUs (0: it has one).
type MeasuredRDMA struct {
	BusbwGbps, LocalGbps float64
	Hosts                int
	NCCL                 string // its version
	At                   time.Time
}

// Hosts implements the use cases of operators: reading and changing their hosts. It is safe for concurrent use.
type Hosts struct {
	db  *db.DB
	bus *bus.Bus
}

// New returns the use cases of operators. b notifies hosts and pages of changes; if b is nil, they notice changes by
// polling.
func New(d *db.DB, b *bus.Bus) *Hosts { return &Hosts{db: d, bus: b} }

// List returns at most limit hosts of who's organisation with ids greater than after, sorted by id. It includes retired
// hosts only if retired is set.
func (x *Hosts) List(ctx context.Context, who account.Principal, after id.Host, limit int,
	retired bool) ([]Detail, error) {
	org := who.Org
	rows, err := x.db.Q.ListHosts(ctx, dbq.ListHostsParams{
		OrgID:   org,
		After:   after,
		MaxRows: int32(limit),
		Retired: retired,
	})
	if err != nil {
		return nil, fmt.Errorf("list of %s: %w", org, err)
	}
	out := make([]Detail, len(rows))
	at := map[id.Host]*Detail{}
	ids := make([]id.Host, len(rows))
	for i, r := range rows {
		out[i] = Detail{Host: fromRow(r.Host, r.HostStatus), FabricName: r.FabricName}
		ids[i], at[r.Host.ID] = r.Host.ID, &out[i]
	}
	gpus, err := listGPUs(ctx, x.db.Q, ids, retired)
	if err != nil {
		return nil, err
	}
	for _, g := range gpus {
		at[g.Host].GPUs = append(at[g.Host].GPUs, g)
	}
	return out, nil
}

// Get returns one host of who's organisation. Fault: NotFound.
func (x *Hosts) Get(ctx context.Context, who account.Principal, host id.Host) (Detail, error) {
	return get(ctx, x.db.Q, who.Org, host)
}

func get(ctx context.Context, q *dbq.Queries, org id.Org, host id.Host) (Detail, error) {
	r, err := q.GetHost(ctx, host, org)
	if db.NoRows(err) {
		return Detail{}, NotFound()
	}
	if err != nil {
		return Detail{}, fmt.Errorf("get %s: %w", host, err)
	}
	d := Detail{Host: fromRow(r.Host, r.HostStatus), FabricName: r.FabricName}
	if err := json.Unmarshal(r.Inventory, &d.Inventory); err != nil {
		return Detail{}, fmt.Errorf("inventory of %s: %w", host, err)
	}
	if d.GPUs, err = listGPUs(ctx, q, []id.Host{host}, d.State == Retired); err != nil {
		return d, err
	}
	if d.Requalify, err = requalifies(ctx, q, host); err != nil {
		return d, err
	}
	measured, err := q.HostRDMA(ctx, host, time.Now().Add(-RDMAMeasuredFor)) // for display
	if err != nil {
		return d, fmt.Errorf("RDMA network of %s: %w", host, err)
	}
	for _, m := range measured {
		d.RDMA = &MeasuredRDMA{BusbwGbps: m.BusbwGbps, LocalGbps: m.LocalGbps, Hosts: int(m.BusbwHosts), NCCL: m.Nccl,
			At: m.BusbwAt.UTC()}
	}
	return d, nil
}

func listGPUs(ctx context.Context, q *dbq.Queries, hosts []id.Host, removed bool) ([]GPU, error) {
	rows, err := q.ListGPUs(ctx, id.UUIDs(hosts...), removed)
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	out := make([]GPU, len(rows))
	for i, r := range rows {
		out[i] = GPU{
			ID: r.ID, Host: r.HostID, UUID: r.UUID, Index: int(r.Idx), Model: r.Model, Arch: r.Arch, VRAMMB: r.VramMb,
			ComputeCap: r.ComputeCap, PCIeGen: int(r.PcieGen), NVLink: r.Nvlink, NVLinkGbps: r.NvlinkGbps,
			BusbwNVLink: r.BusbwNvlink, BusbwNVLinkAt: r.BusbwNvlinkAt.UTC(),
			PowerLimitW: int(r.PowerLimitW), PowerDefaultW: int(r.PowerDefaultW),
			Vendor: r.Vendor, Kind: r.Kind, Parent: r.Parent, AttachName: r.AttachName, ROCmMax: r.RocmMax,
			Health: r.Health, HealthReason: r.HealthReason, Degraded: r.Degraded,
			InUse: r.InUse, Present: r.Present, Claim: ClaimKind(r.Claim),
			Contest: Contest(r.Contest), ContestDecided: r.ContestDecided,
		}
		if r.DegradedSince != nil {
			out[i].DegradedSince = r.DegradedSince.UTC()
		}
		if err := json.Unmarshal(r.Facts, &out[i].Facts); err != nil {
			return nil, fmt.Errorf("facts of GPU %s: %w", r.ID, err)
		}
	}
	return out, nil
}

// NotFound returns the fault for a host that does not exist or belongs to another organisation.
func NotFound() error { return fault.New(fault.NotFound, "host not found") }

// lockOwn locks and returns one of the organisation's hosts. Fault: NotFound, also for another organisation's host.
func lockOwn(ctx context.Context, tx *db.Tx, org id.Org, host id.Host) (Host, error) {
	h, err := lockOne(ctx, tx, host)
	if err == nil && h.Org != org {
		err = NotFound()
	}
	return h, err
}
