// Package fleettest creates organisations and enrolled hosts for tests. It uses the same functions as real enrolment.
package fleettest

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Origin is the address at which test hosts enrol.
const Origin = "https://muster.test"

// Policy accepts hosts that enrol at Origin, simulated ones too.
var Policy = host.EnrollPolicy{Origins: []string{Origin}, AllowSimulated: true}

// Org creates an organisation and a user. It does not make the user a member.
func Org(t testing.TB, d *db.DB) (id.Org, id.User) {
	t.Helper()
	p := New(t, d).SignUp("Test")
	return p.Org, p.User
}

// Agent is the keys of a host, and the host's id after enrolment.
type Agent struct {
	Link   nkeys.KeyPair
	Attest ed25519.PrivateKey
	Host   id.Host
}

// NewAgent creates an agent with new keys.
func NewAgent(t testing.TB) *Agent {
	t.Helper()
	link, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	_, attest, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return &Agent{Link: link, Attest: attest}
}

// LinkKey returns the public link key.
func (a *Agent) LinkKey() string {
	k, err := a.Link.PublicKey()
	if err != nil {
		panic(err) // cannot happen: NewAgent created a valid key
	}
	return k
}

// Request returns an enrolment request with valid proofs.
func (a *Agent) Request(t testing.TB, origin, token string, inv agentapi.Inventory) agentapi.EnrollRequest {
	t.Helper()
	public := a.Attest.Public().(ed25519.PublicKey)
	proof := agentapi.EnrollProof(origin, token, a.LinkKey(), public)
	linkProof, err := a.Link.Sign(proof)
	if err != nil {
		t.Fatal(err)
	}
	return agentapi.EnrollRequest{
		Token: token, LinkKey: a.LinkKey(), AttestKey: public,
		Proof: ed25519.Sign(a.Attest, proof), LinkProof: linkProof, Inventory: inv,
	}
}

// Token creates an enrolment token.
func Token(t testing.TB, d *db.DB, org id.Org, user id.User, name string) string {
	t.Helper()
	return token(t, d, account.Principal{Org: org, User: user}, host.NewEnrollment{Name: name, Region: "eu-test"})
}

func token(t testing.TB, d *db.DB, operator account.Principal, n host.NewEnrollment) string {
	t.Helper()
	e, _, err := host.New(d, nil).CreateEnrollment(t.Context(), operator, n, idem.Request{})
	if err != nil {
		t.Fatal(err)
	}
	return e.Token
}

// Enroll enrols a host with n simulated GPUs. The host has not reported yet; see Activate.
func Enroll(t testing.TB, d *db.DB, org id.Org, user id.User, n int) *Agent {
	t.Helper()
	a := NewAgent(t)
	req := a.Request(t, Origin, Token(t, d, org, user, ""), Inventory(n))
	err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		h, err := host.Enroll(ctx, tx, Policy, req)
		a.Host = h.ID
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// Activate makes enrolled hosts active and reachable, as if they were connected and had just sent a full report.
func Activate(t testing.TB, d *db.DB, agents ...*Agent) {
	t.Helper()
	for _, a := range agents {
		_, err := host.NewAgents(d, nil).RecordReport(t.Context(), a.Host, agentapi.Sync{
			Protocol: agentapi.Protocol,
			BootID:   "boot",
			Full:     true,
			Revision: 1 << 40,
		})
		if err != nil {
			t.Fatal(err)
		}
		New(t, d).Exec("UPDATE host_status SET connected = true, revision_seen = 0 WHERE host_id = $1", a.Host)
	}
}

// GPUs returns the host's GPUs.
func GPUs(t testing.TB, d *db.DB, h id.Host) []host.GPURef {
	t.Helper()
	byUUID, err := host.GPUsByUUID(t.Context(), d.Q, h)
	if err != nil {
		t.Fatal(err)
	}
	var out []host.GPURef
	for _, g := range byUUID {
		out = append(out, host.GPURef{Host: h, GPU: g})
	}
	return out
}

// Inventory returns the inventory of a healthy machine with n simulated GPUs, whose UUIDs are new in each call.
func Inventory(n int) agentapi.Inventory {
	inv := agentapi.Inventory{
		Protocol: agentapi.Protocol, AgentVersion: "test", BootID: "boot", Hostname: "machine", OS: "Debian", Arch: "amd64",
		CPUCores: 64, RAMMB: 512 << 10, DiskGB: 2000, DiskLimited: true, Driver: "550.54", CUDAMax: "12.4",
		Simulated: true, AttachMode: "none", MultiNode: true,
	}
	for i := range n {
		inv.GPUs = append(inv.GPUs, agentapi.GPU{
			UUID: "GPU-" + uuid.NewString(), Index: i, PCIBus: fmt.Sprintf("00000000:%02X:00.0", i+1),
			Model: "NVIDIA H100 80GB HBM3", Architecture: "Hopper", VRAMMB: 81559, ComputeCap: "9.0", Health: host.Healthy,
			PCIeGenMax: agentapi.Known(5), NVLinks: []agentapi.NVLink{{Link: 0, Active: true, Version: 4}},
		})
	}
	return inv
}

// Lease writes a lease of one GPU of a host and its cluster of one node, without renting it.
func Lease(t testing.TB, d *db.DB, h id.Host, renter id.Org) (id.Cluster, id.Lease) {
	t.Helper()
	cluster, node, lease := id.New[id.Cluster](), id.New[id.Node](), id.New[id.Lease]()
	if err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		if err := dbtest.InsertCluster(ctx, tx, cluster, renter, "USD",
			dbtest.Place{Node: node, Lease: lease, Host: h}); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO lease (id, cluster_id, node_id, rank, host_id, renter_org_id, host_org_id,
			gpu_count, gpu_model, gpu_ids, cpu_cores, ram_mb, disk_gb, currency, host_share_ppm, epoch)
			SELECT $1, $2, $3, 0, id, $4, org_id, 1, 'H100', '{}', 1, 1, 1, 'USD', 850000, 1 FROM host WHERE id = $5`,
			lease, cluster, node, renter, h)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return cluster, lease
}

// RaiseRevision raises the revision of a host, as a change of what it shall run does, and wakes it after the commit. b
// may be nil.
func RaiseRevision(ctx context.Context, tx *db.Tx, b *bus.Bus, h id.Host) error {
	batch := &pgx.Batch{}
	host.QueueRevision(batch, tx, b, []id.Host{h})
	return tx.Send(ctx, batch)
}

// Claim claims GPUs for ref, the id of a quote, a lease or a host, until expires (nil: without an end).
func Claim(ctx context.Context, tx *db.Tx, kind host.ClaimKind, ref uuid.UUID, gpus []host.GPURef,
	expires *time.Time) error {
	return host.ClaimAll(ctx, tx, kind, []host.ClaimSet{{Ref: ref, GPUs: gpus}}, expires)
}
