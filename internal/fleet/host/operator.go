package host

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// GPU is one device of a host.
type GPU struct {
	ID         id.GPU
	Host       id.Host
	UUID       string // NVML's
	Index      int
	Model      string
	Arch       string
	VRAMMB     int64
	ComputeCap string
	PCIeGen    int
	NVLink     bool
	NVLinkGbps float64 // one direction, all active links
	// Watts it may draw, and was made for; 0 = not known.
	PowerLimitW, PowerDefaultW int

	Health       string // healthy, suspect, quarantined
	HealthReason string
	InUse        string    // what uses it on the host itself, "Xorg, 412 MiB": it is not offered; "" = nothing does
	Present      bool      // in the last inventory
	Claim        ClaimKind // what it is taken for; "" = free
	Facts        agentapi.GPU
}

// Detail is a host with all that its operator may see.
type Detail struct {
	Host
	FabricName string
	GPUs       []GPU              // by index
	Inventory  agentapi.Inventory // empty in lists
}

// List is the org's hosts in order of their ids, up to limit after the given one; retired ones when asked for.
func List(ctx context.Context, q *dbq.Queries, org id.Org, after id.Host, limit int, retired bool) ([]Detail, error) {
	rows, err := q.ListHosts(ctx, dbq.ListHostsParams{OrgID: org, After: after, MaxRows: int32(limit), Retired: retired})
	if err != nil {
		return nil, fmt.Errorf("host: list of %s: %w", org, err)
	}
	out := make([]Detail, len(rows))
	at := map[id.Host]*Detail{}
	ids := make([]id.Host, len(rows))
	for i, r := range rows {
		out[i] = Detail{Host: fromRow(r.Host, r.HostStatus), FabricName: r.FabricName}
		ids[i], at[r.Host.ID] = r.Host.ID, &out[i]
	}
	gpus, err := listGPUs(ctx, q, ids, retired)
	if err != nil {
		return nil, err
	}
	for _, g := range gpus {
		at[g.Host].GPUs = append(at[g.Host].GPUs, g)
	}
	return out, nil
}

// Get is one of the org's hosts; another org's is fault.NotFound.
func Get(ctx context.Context, q *dbq.Queries, org id.Org, host id.Host) (Detail, error) {
	r, err := q.GetHost(ctx, host, org)
	if db.NoRows(err) {
		return Detail{}, notFound()
	}
	if err != nil {
		return Detail{}, fmt.Errorf("host: get %s: %w", host, err)
	}
	d := Detail{Host: fromRow(r.Host, r.HostStatus), FabricName: r.FabricName}
	if err := json.Unmarshal(r.Inventory, &d.Inventory); err != nil {
		return Detail{}, fmt.Errorf("host: inventory of %s: %w", host, err)
	}
	d.GPUs, err = listGPUs(ctx, q, []id.Host{host}, d.State == Retired)
	return d, err
}

func listGPUs(ctx context.Context, q *dbq.Queries, hosts []id.Host, removed bool) ([]GPU, error) {
	rows, err := q.ListGPUs(ctx, uuids(hosts), removed)
	if err != nil {
		return nil, fmt.Errorf("host: list GPUs: %w", err)
	}
	out := make([]GPU, len(rows))
	for i, r := range rows {
		out[i] = GPU{
			ID: r.ID, Host: r.HostID, UUID: r.UUID, Index: int(r.Idx), Model: r.Model, Arch: r.Arch, VRAMMB: r.VramMb,
			ComputeCap: r.ComputeCap, PCIeGen: int(r.PcieGen), NVLink: r.Nvlink, NVLinkGbps: r.NvlinkGbps,
			PowerLimitW: int(r.PowerLimitW), PowerDefaultW: int(r.PowerDefaultW),
			Health: r.Health, HealthReason: r.HealthReason, InUse: r.InUse, Present: r.Present, Claim: ClaimKind(r.Claim),
		}
		if err := json.Unmarshal(r.Facts, &out[i].Facts); err != nil {
			return nil, fmt.Errorf("host: facts of GPU %s: %w", r.ID, err)
		}
	}
	return out, nil
}

func notFound() error { return fault.New(fault.NotFound, "No such host.") }

// lockOwn locks one of the org's hosts; another org's looks missing.
func lockOwn(ctx context.Context, tx *db.Tx, org id.Org, host id.Host) (Host, error) {
	h, err := lockOne(ctx, tx, host)
	if err == nil && h.Org != org {
		err = notFound()
	}
	return h, err
}

// Rename gives one of the org's hosts another name; fault.Conflict when the org has it already.
func Rename(ctx context.Context, tx *db.Tx, org id.Org, host id.Host, name string) error {
	if !namePattern.MatchString(name) {
		return fault.InvalidField("name", "want 1 to 63 lower-case letters, digits, dots and hyphens")
	}
	if _, err := lockOwn(ctx, tx, org, host); err != nil {
		return err
	}
	err := tx.Q.RenameHost(ctx, name, host)
	if db.IsUnique(err, "host_name") {
		return orNameTaken(nil, name)
	}
	if err != nil {
		return fmt.Errorf("host: rename %s: %w", host, err)
	}
	return nil
}

// Drain keeps new leases away; what runs goes on. Draining a draining host changes nothing.
func Drain(ctx context.Context, tx *db.Tx, b *bus.Bus, who account.Principal, host id.Host) error {
	return move(ctx, tx, b, who, host, "host.drain", Active, Draining)
}

// Resume is the end of Drain, and of Reclaim: what runs goes on.
func Resume(ctx context.Context, tx *db.Tx, b *bus.Bus, who account.Principal, host id.Host) error {
	return move(ctx, tx, b, who, host, "host.resume", Draining, Active)
}

// move takes the host from one state to another and leaves a trail; a host that is there already leaves none.
func move(ctx context.Context, tx *db.Tx, b *bus.Bus, who account.Principal, host id.Host, action string, from,
	to State) error {
	h, err := lockOwn(ctx, tx, who.Org, host)
	switch {
	case err != nil || h.State == to:
		return err
	case h.State != from:
		return fault.New(fault.Conflict, "The host is %s.", h.State)
	}
	if err := tx.Q.SetHostState(ctx, string(to), host); err != nil {
		return fmt.Errorf("host: %s becomes %s: %w", host, to, err)
	}
	publish(tx, b, h)
	return audit.Record(ctx, tx, who.Event(action, host.String(), nil))
}

// Retire takes a host out for ever: its keys are revoked, its connection is closed, its GPUs may enrol elsewhere.
// fault.Conflict while any of its GPUs is claimed: drain first. Retiring a retired host changes nothing.
func Retire(ctx context.Context, tx *db.Tx, b *bus.Bus, who account.Principal, host id.Host) error {
	h, err := lockOwn(ctx, tx, who.Org, host)
	if err != nil || h.State == Retired {
		return err
	}
	if n, err := tx.Q.CountHostClaims(ctx, host); err != nil {
		return fmt.Errorf("host: claims on %s: %w", host, err)
	} else if n > 0 {
		return fault.New(fault.Conflict, "%d of the host's GPUs are in use: drain it and wait until they are free.", n)
	}
	if err := RevokeKeys(ctx, tx, b, host); err != nil {
		return err
	}
	if err := tx.Q.RemoveHostGPUs(ctx, host); err != nil {
		return fmt.Errorf("host: remove GPUs of %s: %w", host, err)
	}
	if err := tx.Q.RetireHost(ctx, host); err != nil {
		return fmt.Errorf("host: retire %s: %w", host, err)
	}
	publish(tx, b, h)
	return audit.Record(ctx, tx, who.Event("host.retire", host.String(), nil))
}

func publish(tx *db.Tx, b *bus.Bus, h Host) {
	tx.AfterCommit(func() { b.Changed(bus.TopicHost(h.ID), bus.TopicOrg(h.Org)) })
}

// Actions lists what the operator can do with the host now: drain, reclaim, resume, retire.
func (h *Host) Actions() []string {
	switch h.State {
	case Active:
		return []string{"drain", "reclaim", "retire"}
	case Draining:
		return []string{"resume", "reclaim", "retire"}
	case Enrolled:
		return []string{"retire"}
	}
	return []string{}
}
