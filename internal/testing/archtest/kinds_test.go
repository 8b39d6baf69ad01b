package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// otherKinds are the kinds of ledger entries that are not literals where the entry is made, with the file that makes
// them. Kinds of Stripe's balance (stripe_…) are allowed by a pattern.
var otherKinds = map[string][]string{
	"internal/billing/payment/claim.go":           {"dispute", "dispute_repaid"},
	"internal/billing/payment/dispute.go":         {"dispute", "dispute_won"},
	"internal/billing/payment/dispute_invoice.go": {"dispute", "dispute_funds", "dispute_won", "dispute_lost"},
	"internal/billing/payment/refund_invoice.go":  {"invoice_refund", "invoice_refund_returned"},
	"internal/billing/postpaid/tax.go":            {"tax_invoice", "tax_invoice_void"},
	// These read entries; Compensate corrects them under a kind of its own.
	"internal/billing/ledger/correct.go": {"compensation"},
	"internal/billing/ledger/chain.go":   {},
	"internal/billing/ledger/history.go": {},
	"internal/billing/ledger/lock.go":    {},
	"internal/billing/ledger/period.go":  {},
	// This books what Stripe charges: stripe_ and Stripe's name of it.
	"internal/stripe/reconcile/reconcile.go": {},
}

var (
	// A constraint that keeps what it knows adds kinds so.
	addedKinds  = regexp.MustCompile(`ADD CONSTRAINT ledger_(account|tx)_kind CHECK \(' \|\| have \|\| ' OR kind (.*?)\)`)
	quoted      = regexp.MustCompile(`'([a-z_]+)'`)
	kindsOf     = regexp.MustCompile(`(?s)ADD CONSTRAINT ledger_(account|tx)_kind CHECK \(kind IN \((.*?)\)`)
	accountKind = regexp.MustCompile(`Kind\w+ +Kind = "([a-z_]+)"`)
)

// The constraints on kinds know every kind that the code books, so that none of them is refused.
func TestTheLedgerKnowsItsKinds(t *testing.T) {
	t.Parallel()
	known := map[string][]string{} // by the newest constraint of each
	for _, file := range glob(t, "../../../migrations/*.sql") {
		for _, m := range kindsOf.FindAllStringSubmatch(read(t, file), -1) {
			known[m[1]] = nil
			for _, k := range quoted.FindAllStringSubmatch(m[2], -1) {
				known[m[1]] = append(known[m[1]], k[1])
			}
		}
		for _, m := range addedKinds.FindAllStringSubmatch(read(t, file), -1) {
			for _, k := range quoted.FindAllStringSubmatch(strings.ReplaceAll(m[2], "''", "'"), -1) {
				known[m[1]] = append(known[m[1]], k[1])
			}
		}
	}
	seen := 0
	for _, m := range accountKind.FindAllStringSubmatch(read(t, "../../billing/ledger/account.go"), -1) {
		if seen++; !slices.Contains(known["account"], m[1]) {
			t.Errorf("accounts of kind %q are refused by the constraint ledger_account_kind: add a migration", m[1])
		}
	}
	if seen != len(known["account"]) || seen == 0 {
		t.Errorf("%d kinds of accounts in the code, %d in the constraint", seen, len(known["account"]))
	}
	booked := 0
	check := func(file, kind string) {
		if booked++; !slices.Contains(known["tx"], kind) && !strings.HasPrefix(kind, "stripe_") {
			t.Errorf("%s: entries of kind %q are refused by the constraint ledger_tx_kind: add a migration", file, kind)
		}
	}
	eachSource(t, func(file string) {
		if strings.HasSuffix(file, "_test.go") || !strings.HasPrefix(file, "internal/billing/") {
			return
		}
		f, err := parser.ParseFile(token.NewFileSet(), "../../../"+file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			kind := entryKind(n)
			if kind == nil {
				return true
			}
			if lit, ok := kind.(*ast.BasicLit); ok {
				s, _ := strconv.Unquote(lit.Value)
				check(file, s)
			} else if _, ok := otherKinds[file]; !ok {
				t.Errorf("%s books entries of a kind that is not a literal: name its kinds in otherKinds", file)
			}
			return true
		})
	})
	for file, kinds := range otherKinds {
		for _, k := range kinds {
			check(file, k)
		}
	}
	if booked < 40 {
		t.Errorf("only %d kinds of entries were found in the code", booked)
	}
}

// entryKind is the kind of a ledger entry that n makes: of a composite literal with Kind and Transfers.
func entryKind(n ast.Node) (kind ast.Expr) {
	lit, ok := n.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	transfers := false
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return nil
		}
		switch k, _ := kv.Key.(*ast.Ident); {
		case k == nil:
		case k.Name == "Kind":
			kind = kv.Value
		case k.Name == "Transfers":
			transfers = true
		}
	}
	if !transfers {
		return nil
	}
	return kind
}
