package model

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"fmt"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/metering"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/seal"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/internal/testing/fleettest"
)

const usd = "USD"

// field is a database with enrolled hosts, one operator and one bond each, and a renter with money: what the real use
// cases of internal/fleet/cluster need to run a gang.
type field struct {
	t        testing.TB
	d        *db.DB
	clusters *cluster.Clusters
	market   *market.Market
	renter   account.Principal
	hosts    []*fieldHost
}

// fieldHost is a host that reports what a test wants of it.
type fieldHost struct {
	id       id.Host
	operator id.Org
	key      ed25519.PrivateKey
	boot     string
	seq      uint64
}

func newField(t testing.TB, hosts int) *field {
	t.Helper()
	f := &field{t: t, d: dbtest.New(t)}
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	f.must(err)
	f.market, err = market.New(f.d, box, market.Config{Currency: usd, AllowSimulated: true})
	f.must(err)
	f.clusters = cluster.New(f.d, f.market, nil, cluster.Config{Currency: usd, Box: box})
	f.renter = f.signUp("renter")
	f.move(ledger.StripeClearing(usd), ledger.Wallet(f.renter.Org, usd), 1000*money.Unit)
	for n := range hosts {
		f.addHost(n)
	}
	return f
}

func (f *field) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

func (f *field) exec(sql string, args ...any) {
	f.t.Helper()
	if _, err := f.d.Pool.Exec(f.t.Context(), sql, args...); err != nil {
		f.t.Fatalf("%s: %v", sql, err)
	}
}

func (f *field) tx(do func(ctx context.Context, tx *db.Tx) error) {
	f.t.Helper()
	f.must(f.d.InTx(f.t.Context(), do))
}

func (f *field) signUp(name string) account.Principal {
	f.t.Helper()
	p := account.Principal{User: id.New[id.User](), Org: id.New[id.Org](), Scopes: account.Scopes()}
	f.exec("INSERT INTO org (id, name, personal) VALUES ($1, $2, true)", p.Org, name)
	f.exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", p.User, name+"@example.com")
	return p
}

func (f *field) move(from, to ledger.Account, n money.Nano) {
	f.t.Helper()
	f.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{Kind: "topup", Key: "test:" + id.New[id.LedgerTx]().String(),
			Transfers: []ledger.Transfer{{Debit: from, Credit: to, Amount: n}}})
		return err
	})
}

// addHost enrols a host with one GPU, of an operator of its own, at a price of its own.
func (f *field) addHost(n int) {
	f.t.Helper()
	op := f.signUp(fmt.Sprintf("operator-%d", n))
	f.move(ledger.StripeClearing(usd), ledger.HostBond(op.Org, usd), 100*money.Unit)
	pub, priv, err := ed25519.GenerateKey(nil)
	f.must(err)
	link, err := nkeys.CreateUser()
	f.must(err)
	linkKey, err := link.PublicKey()
	f.must(err)
	h := &fieldHost{operator: op.Org, key: priv, boot: "enrolled"}
	inv := agentapi.Inventory{
		Protocol:      agentapi.Protocol,
		AgentVersion:  "test",
		BootID:        h.boot,
		Hostname:      fmt.Sprintf("host-%d", n),
		Arch:          "amd64",
		CPUCores:      8,
		RAMMB:         64_000,
		DiskGB:        10_000,
		DiskLimited:   true,
		Driver:        "550.54",
		CUDAMax:       "12.4",
		Simulated:     true,
		AttachMode:    "none",
		MultiNode:     true,
		DockerVersion: "25.0",
		StorageDriver: "overlay2",
		GPUs: []agentapi.GPU{{
			UUID: fmt.Sprintf("GPU-%04d", n), PCIBus: "00000000:01:00.0", Model: "NVIDIA H100 80GB HBM3", Architecture: "Hopper",
			VRAMMB: 81_559, ComputeCap: "9.0", Health: "healthy",
		}},
	}
	const origin = "https://muster.example"
	e, _, err := host.New(f.d, nil).CreateEnrollment(f.t.Context(), op, host.NewEnrollment{
		Name:   inv.Hostname,
		Region: "eu",
		Fabric: "rack-1",
	}, idem.Request{})
	f.must(err)
	proof := agentapi.EnrollProof(origin, e.Token, linkKey, pub)
	linkProof, err := link.Sign(proof)
	f.must(err)
	f.tx(func(ctx context.Context, tx *db.Tx) error {
		got, err := host.Enroll(ctx, tx, host.EnrollPolicy{
			Origins:        []string{origin},
			AllowSimulated: true,
		}, agentapi.EnrollRequest{
			Token:     e.Token,
			LinkKey:   linkKey,
			AttestKey: pub,
			Proof:     ed25519.Sign(priv, proof),
			LinkProof: linkProof,
			Inventory: inv,
		})
		h.id = got.ID
		return err
	})
	nonce := []byte("nonce")
	sig, err := link.Sign(nonce)
	f.must(err)
	l, err := host.NewAgents(f.d, nil).VerifyLink(f.t.Context(), linkKey, nonce, sig)
	f.must(err)
	_, err = host.NewAgents(f.d, nil).OpenSession(f.t.Context(), l, host.Conn{
		Server:   "s",
		Client:   uint64(n + 1),
		Instance: "i",
		Address:  "192.0.2.1",
	})
	f.must(err)
	f.report(h, 1, agentapi.LeaseStatus{})
	price := money.Micro(2_000_000 + 777_777*n)
	f.tx(func(ctx context.Context, tx *db.Tx) error {
		if err := fleettest.RecordInventory(ctx, tx, h.id, inv); err != nil {
			return err
		}
		return f.market.SyncOffers(ctx, tx, h.id)
	})
	f.must(f.market.ChangeHost(f.t.Context(), op, h.id, market.HostChange{Terms: market.Terms{Price: &price}}))
	f.hosts = append(f.hosts, h)
}

// report delivers a full report made at the given moment of the host's clock; a status without a lease is left out.
func (f *field) report(h *fieldHost, bootMS int64, st agentapi.LeaseStatus, segments ...agentapi.Segment) {
	f.t.Helper()
	h.seq++
	s := agentapi.Sync{
		Protocol:     agentapi.Protocol,
		AgentVersion: "test",
		BootID:       h.boot,
		BootMS:       bootMS,
		Revision:     1 << 40,
		Full:         true,
		Seq:          h.seq,
		Leases:       []agentapi.LeaseStatus{},
	}
	if st.Lease != "" {
		s.Leases = append(s.Leases, st)
	}
	f.ingest(h, segments...)
	rep, err := host.NewAgents(f.d, nil).RecordReport(f.t.Context(), h.id, s)
	f.must(err)
	f.must(f.clusters.Hosts.ApplyReport(f.t.Context(), h.id, s, rep.Gone))
}

// ingest delivers segments of a host.
func (f *field) ingest(h *fieldHost, segments ...agentapi.Segment) {
	f.t.Helper()
	if len(segments) == 0 {
		return
	}
	acks, err := metering.NewCollector(f.d).Ingest(f.t.Context(), h.id, segments, nil)
	f.must(err)
	for _, a := range acks {
		if a.Refused != "" {
			f.t.Fatalf("a segment is refused: %s", a.Refused)
		}
	}
}

// look makes a cluster due and lets the watchdog look at it.
func (f *field) look(cl id.Cluster) {
	f.t.Helper()
	f.exec("UPDATE cluster SET due_at = clock_timestamp(), full_look_at = 'epoch' WHERE id = $1 AND due_at IS NOT NULL",
		cl)
	r, err := f.clusters.Watchdog.Pass(f.t.Context())
	f.must(err)
	if r.Failed > 0 {
		f.t.Fatal("the watchdog could not tend the cluster")
	}
}

// rent rents a gang of one GPU of each host.
func (f *field) rent() cluster.Cluster {
	f.t.Helper()
	// On a busy machine, the other fields' turns may have taken longer than a host may be silent.
	f.exec("UPDATE host_status SET last_sync_at = clock_timestamp()")
	s := market.DefaultSpec()
	s.Name, s.Image, s.Nodes, s.GPUsPerNode = "train", "example.com/train:1", len(f.hosts), 1
	c, _, err := f.clusters.Rentals.Rent(f.t.Context(), f.renter, cluster.RentRequest{Spec: s}, idem.Request{})
	f.must(err)
	return c
}
