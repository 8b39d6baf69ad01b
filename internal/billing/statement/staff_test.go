package statement_test

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/audit"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

func TestStaff_Only(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	for who, allowed := range map[*account.Principal]bool{
		{Scopes: append(account.Scopes(), account.ScopeAdmin)}: false, // a scope alone is not enough
		{Admin: true}: true,
	} {
		reads := map[string]func() error{
			"books": func() error {
				_, err := statement.New(d, "EUR", statement.Party{}).TrialBalance(t.Context(), *who)
				return err
			},
			"entries": func() error {
				_, err := statement.New(d, "EUR", statement.Party{}).SearchLedger(t.Context(), *who, "x", id.LedgerTx{}, 1)
				return err
			},
			"audit": func() error {
				_, err := statement.New(d, "EUR", statement.Party{}).SearchAudit(t.Context(), *who, audit.Filter{}, id.Audit{}, 1)
				return err
			},
			"taxes": func() error {
				_, err := statement.New(d, "USD", statement.Party{}).Taxes(t.Context(), *who, "2026")
				return err
			},
		}
		for name, read := range reads {
			if err := read(); allowed != (err == nil) || (err != nil && !fault.Is(err, fault.Forbidden)) {
				t.Errorf("%s, admin %v: %v", name, who.Admin, err)
			}
		}
	}
}
