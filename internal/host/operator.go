package host

import (
	"context"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
)

// GPU is one device of a host.
type GPU struct {
	ID           id.GPU
	Host         id.Host
	UUID         string // NVML's
	Index        int
	Model        string
	Arch         string
	VRAMMB       int64
	ComputeCap   string
	PCIeGen      int
	NVLink       bool
	NVLinkGbps   float64
	Health       string // healthy, suspect, quarantined
	HealthReason string
	Present      bool      // in the last inventory
	Claim        ClaimKind // what it is taken for; "" = free
	Facts        agentapi.GPU
}

// Detail is a host with all that its operator may see.
type Detail struct {
	Host
	FabricName string
	GPUs       []GPU // by index
	Inventory  agentapi.Inventory
}

// List is the org's hosts by id, retired ones last seen too when asked for, up to limit after the given one.
func List(ctx context.Context, q *dbq.Queries, org id.Org, after id.Host, limit int, retired bool) ([]Detail, error) {
	return nil, notBuilt()
}

// Get is one of the org's hosts; another org's is fault.NotFound.
func Get(ctx context.Context, q *dbq.Queries, org id.Org, host id.Host) (Detail, error) {
	return Detail{}, notBuilt()
}

// Rename gives one of the org's hosts another name; fault.Conflict when the org has it already.
func Rename(ctx context.Context, tx *db.Tx, org id.Org, host id.Host, name string) error {
	return notBuilt()
}

// Drain keeps new leases away; what runs goes on. Draining a draining host changes nothing.
func Drain(ctx context.Context, tx *db.Tx, b *bus.Bus, org id.Org, host id.Host) error {
	return notBuilt()
}

// Resume is the end of Drain.
func Resume(ctx context.Context, tx *db.Tx, b *bus.Bus, org id.Org, host id.Host) error {
	return notBuilt()
}

// Retire takes a host out for ever: its keys are revoked, its connection is closed, its GPUs may enrol elsewhere.
// fault.Conflict while any of its GPUs is claimed: drain first. Retiring a retired host changes nothing.
func Retire(ctx context.Context, tx *db.Tx, b *bus.Bus, org id.Org, host id.Host) error {
	return notBuilt()
}

// Actions lists what the operator can do with the host now: drain, resume, retire.
func (h *Host) Actions() []string {
	switch h.State {
	case Active:
		return []string{"drain", "retire"}
	case Draining:
		return []string{"resume", "retire"}
	case Enrolled:
		return []string{"retire"}
	}
	return []string{}
}
