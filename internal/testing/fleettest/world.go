package fleettest

import (
	"bytes"
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/seal"
)

// Currency is the currency of all prices and wallets.
const Currency = "USD"

// World is a database with what the fleet's use cases need: organisations with money, hosts that agents have enrolled,
// and offers. Its methods end the test if they fail.
type World struct {
	T  testing.TB
	DB *db.DB
}

// New returns the world on a database.
func New(t testing.TB, d *db.DB) *World { return &World{t, d} }

// Must ends the test if err is not nil.
func (w *World) Must(err error) {
	w.T.Helper()
	if err != nil {
		w.T.Fatal(err)
	}
}

// Exec runs a statement.
func (w *World) Exec(sql string, args ...any) {
	w.T.Helper()
	if _, err := w.DB.Pool.Exec(w.T.Context(), sql, args...); err != nil {
		w.T.Fatalf("%s: %v", sql, err)
	}
}

// Unguarded is Exec without the triggers by which the database guards what nothing else may change.
func (w *World) Unguarded(sql string, args ...any) {
	w.T.Helper()
	w.Must(pgx.BeginFunc(w.T.Context(), w.DB.Pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(w.T.Context(), "SET LOCAL session_replication_role = replica"); err != nil {
			return err
		}
		_, err := tx.Exec(w.T.Context(), sql, args...)
		return err
	}))
}

// Tx runs f in a transaction.
func (w *World) Tx(f func(ctx context.Context, tx *db.Tx) error) {
	w.T.Helper()
	w.Must(w.DB.InTx(w.T.Context(), f))
}

// SignUp creates a personal organisation and its user, who may do everything in it.
func (w *World) SignUp(name string) account.Principal {
	w.T.Helper()
	p := account.Principal{User: id.New[id.User](), Org: w.Org(name), Scopes: account.Scopes()}
	w.Exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", p.User, p.User.String()+"@example.com")
	return p
}

// Org creates a personal organisation.
func (w *World) Org(name string) id.Org {
	w.T.Helper()
	org := id.New[id.Org]()
	w.Exec("INSERT INTO org (id, name, personal) VALUES ($1, $2, true)", org, name)
	return org
}

// Fund adds money to an organisation's wallet.
func (w *World) Fund(org id.Org, amount money.Nano) {
	w.T.Helper()
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  "topup:" + id.New[id.TopUp]().String(),
			Transfers: []ledger.Transfer{{
				Debit: ledger.StripeClearing(Currency), Credit: ledger.Wallet(org, Currency), Amount: amount,
			}},
		})
		return err
	})
}

// Box returns the box that encrypts secrets, the same in each replica.
func (w *World) Box() *seal.Box {
	w.T.Helper()
	box, err := seal.NewBox(bytes.Repeat([]byte{7}, 32))
	w.Must(err)
	return box
}

// AddHost enrols a host with this inventory in a fabric ("" = none) as its agent would, and opens its session from the
// given client number. The host has not reported yet.
func (w *World) AddHost(operator account.Principal, inv agentapi.Inventory, fabric string, client uint64) *Agent {
	w.T.Helper()
	a := NewAgent(w.T)
	req := a.Request(w.T, Origin, token(w.T, w.DB, operator, host.NewEnrollment{
		Name: inv.Hostname, Region: "eu", Fabric: fabric,
	}), inv)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		h, err := host.Enroll(ctx, tx, Policy, req)
		a.Host = h.ID
		return err
	})
	agents, nonce := host.NewAgents(w.DB, nil), []byte("nonce")
	proof, err := a.Link.Sign(nonce)
	w.Must(err)
	link, err := agents.VerifyLink(w.T.Context(), a.LinkKey(), nonce, proof)
	w.Must(err)
	_, err = agents.OpenSession(w.T.Context(), link, host.Conn{
		Server: "s", Client: client, Instance: "i", Address: "192.0.2.1",
	})
	w.Must(err)
	return a
}
