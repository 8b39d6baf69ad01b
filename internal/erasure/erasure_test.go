package erasure_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/document"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/erasure"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

const (
	email    = "ada.lovelace@example.com"
	password = "analytical engine"
	address  = "203.0.113.77"
	key      = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIBx8yZl7YwJgVbT3K0g2pUQqk3nXkqX0p1yV2m3n4o5p"
)

type person struct {
	t        *testing.T
	d        *db.DB
	accounts *account.Accounts
	p        account.Principal
	secret   string // of the session
}

func newPerson(t *testing.T) *person {
	t.Helper()
	d := dbtest.New(t)
	a := account.New(d, account.Config{HashMemoryKiB: 64})
	_, err := a.SignUps.Register(t.Context(), account.SignUp{
		Email:    email,
		Password: password,
		Name:     "Ada Lovelace",
		Address:  address,
	})
	if err != nil {
		t.Fatal(err)
	}
	secret, p, err := a.Sessions.SignIn(t.Context(), account.SignIn{
		Email:     email,
		Password:  password,
		Address:   address,
		UserAgent: "Lovelace/1.0",
	})
	if err != nil {
		t.Fatal(err)
	}
	return &person{t, d, a, p, secret}
}

func (x *person) exec(sql string, args ...any) {
	x.t.Helper()
	if _, err := x.d.Pool.Exec(x.t.Context(), sql, args...); err != nil {
		x.t.Fatal(err)
	}
}

func (x *person) delete(giveUp bool) error {
	return erasure.New(x.d, x.accounts.Passwords).Delete(x.t.Context(), x.p, erasure.Request{
		Password: password,
		Confirm:  email,
		GiveUp:   giveUp,
	})
}

// left are the tables that still hold any of the words.
func (x *person) left(words ...string) (out []string) {
	x.t.Helper()
	for _, table := range []string{"app_user", "org", "org_legal", "membership", "session", "mail", "notice",
		"audit_event", "api_token", "ssh_key", "email_verification"} {
		for _, w := range words {
			var n int
			if err := x.d.Pool.QueryRow(x.t.Context(), "SELECT count(*) FROM "+table+
				" x WHERE strpos(lower(x::text), lower($1)) > 0", w).Scan(&n); err != nil {
				x.t.Fatal(err)
			}
			if n > 0 {
				out = append(out, table+" has "+w)
			}
		}
	}
	return out
}

// After a deletion nothing of the person is left but documents, and neither the session, the token nor the password
// work.
func TestErase_LeavesDocumentsOnly(t *testing.T) {
	t.Parallel()
	x := newPerson(t)
	_, token, err := x.accounts.Tokens.Issue(t.Context(), x.p, account.NewToken{
		Name:   "Lovelace's laptop",
		Scopes: []string{account.ScopeRead},
	})
	if err != nil {
		t.Fatal(err)
	}
	x.exec("INSERT INTO ssh_key (id, org_id, user_id, name, public_key, fingerprint) VALUES ($1, $2, $3, 'Lovelace', "+
		"$4, 'SHA256:x')", id.New[id.SSHKey](), x.p.Org, x.p.User, key)
	x.exec("INSERT INTO org_legal (org_id, name, address, country) VALUES ($1, 'Ada Lovelace', '{\"1 Lovelace "+
		"Road\"}', 'GB')", x.p.Org)
	x.exec("INSERT INTO mail (id, user_id, address, subject, body) VALUES ($1, $2, $3, 'Dear Ada Lovelace', 'b')",
		id.New[id.Notice](), x.p.User, email)
	x.exec("INSERT INTO notice (id, org_id, dedupe_key, severity, title) VALUES ($1, $2, 'k', 'info', 'Lovelace')",
		id.New[id.Notice](), x.p.Org)
	if err := x.accounts.SetAdmin(t.Context(), email, true); err != nil {
		t.Fatal(err)
	}
	if err := x.delete(false); fault.KindOf(err) != fault.Conflict {
		t.Fatal("an operator of the platform was deleted:", err)
	}
	if err := x.accounts.SetAdmin(t.Context(), email, false); err != nil {
		t.Fatal(err)
	}
	if err := x.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		return document.Issue(ctx, tx, document.Draft{
			Series:  document.CreditNote,
			Org:     x.p.Org,
			Key:     "c",
			Content: map[string]string{"customer": "Ada Lovelace"},
		})
	}); err != nil {
		t.Fatal(err)
	}
	data, err := erasure.New(x.d, x.accounts.Passwords).Export(t.Context(), x.p)
	for _, want := range []string{email, address, "Lovelace's laptop", key, "1 Lovelace Road", "Lovelace/1.0",
		"credit_note"} {
		if err != nil || !strings.Contains(string(data), want) {
			t.Errorf("the export lacks %s: %v", want, err)
		}
	}
	if strings.Contains(string(data), "hash") || strings.Contains(string(data), "argon2") {
		t.Error("the export has secrets")
	}
	for _, r := range []erasure.Request{{
		Password: "wrong password",
		Confirm:  email,
	}, {Password: password}, {Password: password, Confirm: "x"}} {
		err := erasure.New(x.d, x.accounts.Passwords).Delete(t.Context(), x.p, r)
		if fault.KindOf(err) != fault.Invalid {
			t.Errorf("%+v: %v", r, err)
		}
	}
	if err := x.delete(false); err != nil {
		t.Fatal(err)
	}
	if left := x.left("lovelace", address, "AAAAC3", "argon2"); len(left) > 0 {
		t.Error(left)
	}
	var content string
	if err := x.d.Pool.QueryRow(t.Context(),
		"SELECT content::text FROM document WHERE key = 'c'").Scan(&content); err != nil ||
		!strings.Contains(content, "Lovelace") {
		t.Error("a document is gone:", content, err)
	}
	if _, err := x.accounts.Sessions.Principal(t.Context(), x.secret); fault.KindOf(err) != fault.Unauthorized {
		t.Error("the session works:", err)
	}
	if _, err := x.accounts.Tokens.Principal(t.Context(), token); fault.KindOf(err) != fault.Unauthorized {
		t.Error("the token works:", err)
	}
	for _, e := range []string{email, "deleted:" + x.p.User.UUID().String()} {
		for _, p := range []string{password, ""} {
			if _, _, err := x.accounts.Sessions.SignIn(t.Context(), account.SignIn{
				Email:    e,
				Password: p,
			}); fault.KindOf(err) != fault.Unauthorized {
				t.Errorf("%s signs in: %v", e, err)
			}
		}
	}
	if _, err := x.accounts.SignUps.Register(t.Context(), account.SignUp{Email: email, Password: password}); err != nil {
		t.Error("the address cannot be used again:", err)
	}
}

// What is in the way is named, and goes away one by one.
func TestErase_RefusedWithReasons(t *testing.T) {
	t.Parallel()
	x := newPerson(t)
	if err := x.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, ledger.Entry{
			Kind: "topup",
			Key:  "k",
			Transfers: []ledger.Transfer{{
				Debit:  ledger.StripeClearing("EUR"),
				Credit: ledger.Wallet(x.p.Org, "EUR"),
				Amount: 5 * money.Unit,
			}},
		})
		return err
	}); err != nil {
		t.Fatal(err)
	}
	topup := id.New[id.TopUp]()
	x.exec("INSERT INTO topup (id, org_id, user_id, amount, currency, state) VALUES ($1, $2, $3, 1000000000, 'EUR', "+
		"'pending')", topup, x.p.Org, x.p.User)
	x.exec("INSERT INTO host (id, org_id, name, region, state) VALUES ($1, $2, 'h', 'eu', 'active')", id.New[id.Host](),
		x.p.Org)
	x.exec("INSERT INTO payout (id, org_id, stripe_account, amount, currency, state) VALUES ($1, $2, 'acct_x', 1, "+
		"'EUR', 'pending')", id.New[id.Payout](), x.p.Org)
	billingtest.OweStorage(t, x.d, x.p.Org, 120*money.Unit, time.Hour)
	for _, step := range []struct{ reason, mend string }{
		{"120.00 are owed for what volumes stored", "UPDATE data_meter SET unpaid_since = NULL"},
		{"hosts", "UPDATE host SET state = 'retired'"},
		{"a payment or a refund", "UPDATE topup SET state = 'failed'"},
		{"a payout", "UPDATE payout SET state = 'paid'"},
	} {
		err := x.delete(true)
		if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), step.reason) {
			t.Fatalf("%s: %v", step.reason, err)
		}
		x.exec(step.mend)
	}
	if err := x.delete(false); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "5.00 are left") {
		t.Fatal(err)
	}
	other := id.New[id.User]()
	x.exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, 'b@c.d', 'x')", other)
	x.exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'member')", x.p.Org, other)
	if err := x.delete(true); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "only owner") {
		t.Fatal(err)
	}
	x.exec("UPDATE membership SET role = 'owner'")
	if err := x.delete(false); err != nil { // the money is the organisation's, which goes on
		t.Fatal(err)
	}
	var name string
	if err := x.d.Pool.QueryRow(t.Context(), "SELECT name FROM org WHERE id = $1", x.p.Org).Scan(&name); err != nil ||
		name == "deleted" {
		t.Error(name, err)
	}
}

// Documents are erased by the job alone, and only when their retention is over; their numbers stay.
func TestRetention_EndedByJobOnly(t *testing.T) {
	t.Parallel()
	x := newPerson(t)
	for _, k := range []string{"old", "young"} {
		if err := x.d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			return document.Issue(ctx, tx, document.Draft{
				Series:  document.CreditNote,
				Org:     x.p.Org,
				Key:     k,
				Content: map[string]string{"customer": "Ada"},
			})
		}); err != nil {
			t.Fatal(err)
		}
		topup := id.New[id.TopUp]()
		x.exec("INSERT INTO topup (id, org_id, user_id, amount, currency, state, tax_vat_id) VALUES ($1, $2, $3, 1, "+
			"'EUR', 'failed', 'DE1')", topup, x.p.Org, x.p.User)
		x.exec("INSERT INTO receipt (topup_id, content) VALUES ($1, '{\"customer\": \"Ada\"}')", topup)
		x.exec("INSERT INTO invoice (org_id, month, currency, number, content) VALUES ($1, $2, 'EUR', 'M', "+
			"'{\"customer\": \"Ada\"}')", x.p.Org, k)
		x.exec("INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason, name, ppm, net, tax, currency) "+
			"VALUES ($1, $2, 'topup', 'r', 'DE', 'DE1', 'home', '', 0, 1, 0, 'EUR')", k, x.p.Org)
		if k == "old" {
			x.exec(`SET LOCAL session_replication_role = replica;
				UPDATE document SET issued_at = issued_at - interval '11 years'; UPDATE receipt SET issued_at = issued_at -
				interval '11 years';
				UPDATE invoice SET issued_at = issued_at - interval '11 years'; UPDATE tax_entry SET created_at = created_at -
				interval '11 years';
				UPDATE topup SET created_at = created_at - interval '11 years'`)
		}
	}
	count := func() (n int) {
		t.Helper()
		if err := x.d.Pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM document WHERE content::text LIKE '%Ada%') +
			(SELECT count(*) FROM receipt WHERE content::text LIKE '%Ada%')
			+ (SELECT count(*) FROM invoice WHERE content::text LIKE '%Ada%') + (SELECT count(*) FROM tax_entry WHERE vat_id <>
			'') + (SELECT count(*) FROM topup WHERE tax_vat_id <> '')`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, sql := range []string{
		`UPDATE document SET content = '{"erased": true}'`, `UPDATE receipt SET content =
			'{"erased": true}'`, `UPDATE invoice SET content = '{"erased": true}'`, "UPDATE tax_entry SET vat_id = ''",
		"DELETE FROM receipt", "DELETE FROM invoice", "DELETE FROM tax_entry", "DELETE FROM document",
		// As the job, but of the young, or something else.
		`SET LOCAL muster.retention = 'on'; UPDATE document SET content = '{"erased": true}' WHERE key = 'young'`,
		`SET LOCAL muster.retention = 'on'; UPDATE receipt SET content = '{"erased": true}'`,
		`SET LOCAL muster.retention = 'on'; UPDATE receipt SET content = '{}' WHERE issued_at < clock_timestamp() - interval '10 years'`,
		`SET LOCAL muster.retention = 'on'; UPDATE invoice SET content = '{"erased": true}',
			number = 'x' WHERE month = 'old'`,
		`SET LOCAL muster.retention = 'on'; UPDATE tax_entry SET net = 2 WHERE key = 'old'`,
		`SET LOCAL muster.retention = 'on'; DELETE FROM document WHERE key = 'old'`,
	} {
		if _, err := x.d.Pool.Exec(t.Context(), sql); err == nil {
			t.Errorf("%s was done", sql)
		}
	}
	if n := count(); n != 10 {
		t.Fatal(n)
	}
	for want := 5; want >= 0; want -= 5 {
		if n, err := erasure.EndRetention(t.Context(), x.d); err != nil || n != want {
			t.Fatal(n, err)
		}
	}
	if n := count(); n != 5 {
		t.Errorf("%d are left, want the 5 young ones", n)
	}
	checks, err := document.CheckAll(t.Context(), x.d.Q)
	if err != nil || len(checks) != 1 || checks[0].Issued != 2 ||
		strings.Contains(checks[0].Problem, "numbers were given") {
		t.Errorf("%+v %v", checks, err)
	}
}
