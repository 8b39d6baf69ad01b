package account_test

import (
	"testing"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/testing/dbtest"
)

// Organisations share quotas if a user may rent in both or both have saved a card, directly or through others. A link
// that has ended counts from the moment that the caller gives.
func TestCircle_SharedPersonOrCard(t *testing.T) {
	t.Parallel()
	d := dbtest.New(t)
	exec := func(sql string, args ...any) {
		t.Helper()
		if _, err := d.Pool.Exec(t.Context(), sql, args...); err != nil {
			t.Fatal(err)
		}
	}
	orgs, users := map[string]id.Org{}, map[string]id.User{}
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		orgs[name], users[name] = id.New[id.Org](), id.New[id.User]()
		exec("INSERT INTO org (id, name, personal) VALUES ($1, $2, true)", orgs[name], name)
		exec("INSERT INTO app_user (id, email, password_hash) VALUES ($1, $2, 'x')", users[name], name+"@example.com")
		exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, 'owner')", orgs[name], users[name])
	}
	join := func(org, user, role string) {
		t.Helper()
		exec("INSERT INTO membership (org_id, user_id, role) VALUES ($1, $2, $3) ON CONFLICT (org_id, user_id) DO UPDATE "+
			"SET role = excluded.role", orgs[org], users[user], role)
	}
	card := func(org, number string) {
		t.Helper()
		exec("INSERT INTO payment_card (id, org_id, method_id, brand, last4, exp_month, exp_year, fingerprint) VALUES "+
			"($1, $2, $3, 'visa', '4242', 1, 2030, $4)", id.New[id.Card](), orgs[org], "pm_"+org, number)
	}
	expect := func(of, want string) {
		t.Helper()
		rows, err := d.Pool.Query(t.Context(), "SELECT o.name FROM org_circle($1, clock_timestamp() - interval '6 hours') c "+
			"JOIN org o ON o.id = c ORDER BY o.name", orgs[of])
		if err != nil {
			t.Fatal(err)
		}
		var got string
		for rows.Next() {
			var name string
			if err := rows.Scan(&name); err != nil {
				t.Fatal(err)
			}
			got += name
		}
		if err := rows.Err(); err != nil || got != want {
			t.Errorf("the circle of %s is %q, want %q (%v)", of, got, want, err)
		}
	}
	for _, role := range []string{"viewer", "billing", "operator"} {
		join("a", "b", role)
		expect("a", "a")
	}
	exec(`INSERT INTO org_invitation (id, org_id, email, role, secret_hash, created_by, expires_at)
		VALUES ($1, $2, 'c@example.com', 'member', 'x', $3, clock_timestamp() + interval '1 day')`,
		id.New[id.Invitation](), orgs["a"], users["a"])
	expect("c", "c") // an invitation that is not accepted links no one
	for _, role := range []string{"member", "admin", "owner"} {
		join("a", "b", role)
		expect("a", "ab")
	}
	card("b", "card1")
	card("d", "card1")
	card("e", "card2")
	exec("UPDATE payment_card SET removed_at = clock_timestamp() WHERE org_id = $1", orgs["d"])
	expect("d", "abd") // through others, and by a card that was removed
	expect("e", "e")
	exec("DELETE FROM membership WHERE org_id = $1 AND user_id = $2", orgs["a"], users["b"])
	expect("a", "abd") // what ended lately still counts, on both sides
	expect("b", "abd")
	exec("UPDATE circle_link SET ended_at = ended_at - interval '7 hours' WHERE ended_at IS NOT NULL")
	expect("a", "a")
	expect("b", "bd")
	join("a", "b", "member")
	expect("a", "abd")
	join("a", "b", "viewer")
	exec("UPDATE circle_link SET ended_at = ended_at - interval '32 days' WHERE ended_at IS NOT NULL")
	if n, err := account.DropEndedLinks(t.Context(), d); n != 1 || err != nil {
		t.Errorf("%d ended links dropped, %v", n, err)
	}
	expect("b", "bd")
	for _, r := range account.Roles() {
		var rents bool
		if err := d.Pool.QueryRow(t.Context(), "SELECT role_rents($1)", string(r)).Scan(&rents); err != nil ||
			rents != r.Can(account.ScopeClusters) {
			t.Errorf("role %s: role_rents is %t, %v", r, rents, err)
		}
	}
}
