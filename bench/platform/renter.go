package platform

import (
	"context"
	"fmt"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// Currency of every wallet.
const Currency = "USD"

// Renter is an org with money and a token.
type Renter struct {
	Org   id.Org
	Token string // secret
}

// AddRenters signs up n renters, gives each a token and pays in funds.
func AddRenters(ctx context.Context, d *db.DB, n int, funds money.Nano) ([]Renter, error) {
	accounts := account.New(d, account.Config{})
	out := make([]Renter, n)
	for i := range out {
		p := account.Principal{User: id.New[id.User](), Org: id.New[id.Org](), Scopes: account.Scopes()}
		err := d.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			for _, s := range []struct {
				sql  string
				args []any
			}{
				{"INSERT INTO org (id, name, personal) VALUES ($1, $2, true)", []any{p.Org, fmt.Sprintf("renter %d", i)}},
				// No sign-in is measured, so no password is hashed.
				{"INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')",
					[]any{p.User, fmt.Sprintf("renter%d@example.com", i)}},
				{"INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", []any{p.Org, p.User}},
				// It ran a large cluster, so that the quota of starts refuses none of its rents on a slow machine.
				{`INSERT INTO cluster (id, org_id, created_by, name, spec, image_ref, state, node_count, gpus_per_node, rate,
					currency, running_at, ended_at) VALUES ($1, $2, $3, 'large', '{}', 'i', 'released', 128, 16, 1, $4,
					clock_timestamp() - interval '2 days', clock_timestamp() - interval '1 day')`,
					[]any{id.New[id.Cluster](), p.Org, p.User, Currency}},
			} {
				if _, err := tx.Exec(ctx, s.sql, s.args...); err != nil {
					return err
				}
			}
			_, err := ledger.Post(ctx, tx, ledger.Entry{
				Kind: "topup",
				Key:  "topup:" + p.Org.String(),
				Transfers: []ledger.Transfer{
					{Debit: ledger.StripeClearing(Currency), Credit: ledger.Wallet(p.Org, Currency), Amount: funds}},
			})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("renter %d: %w", i, err)
		}
		_, secret, err := accounts.Tokens.Issue(ctx, p, account.NewToken{Name: "bench", Scopes: account.Scopes()})
		if err != nil {
			return nil, fmt.Errorf("renter %d: %w", i, err)
		}
		out[i] = Renter{p.Org, secret}
	}
	return out, nil
}
