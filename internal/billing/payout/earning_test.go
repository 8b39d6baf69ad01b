package payout

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"regexp"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/billing/claim"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/testing/billingtest"
	"github.com/musterhq/muster/internal/testing/dbtest"
	"github.com/musterhq/muster/migrations"
)

// history is an operator's postings over two days, written as the ledger writes them, at times of our choice.
type history struct {
	*world
	r       *rand.Rand
	from    time.Time
	payers  []id.Org
	debits  []id.LedgerAccount // holds, wallets and reserved bonds of the payers, and the platform's relief
	pending id.LedgerAccount
	times   []time.Time
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{
		world: newWorld(t),
		r:     rand.New(rand.NewPCG(seed, 190)),
		from:  time.Now().UTC().Truncate(time.Hour).Add(-50 * time.Hour),
	}
	h.pending = h.account(ledger.HostPending(h.operator, eur))
	h.debits = append(h.debits, h.account(ledger.StandbyRelief(eur)), h.account(ledger.Goodwill(eur)))
	for range 3 {
		o := h.Org()
		h.payers = append(h.payers, o)
		h.debits = append(h.debits, h.account(ledger.Wallet(o, eur)), h.account(ledger.Hold(o, id.New[id.Cluster](), eur)),
			h.account(ledger.BondHold(o, id.New[id.Lease](), eur)))
	}
	return h
}

func (h *history) account(a ledger.Account) (n id.LedgerAccount) {
	h.T.Helper()
	n = id.New[id.LedgerAccount]()
	h.Exec("INSERT INTO ledger_account (id, kind, owner, org_id, currency) VALUES ($1, $2, $3, $4, $5)",
		n, string(a.Kind), a.Owner, pgtype.UUID{Bytes: a.Org.UUID(), Valid: !a.Org.IsZero()}, a.Currency)
	h.Exec("INSERT INTO ledger_balance (account_id, amount) VALUES ($1, 0)", n)
	return n
}

// at returns a moment of the two days, often the edge of an hour.
func (h *history) at() time.Time {
	if len(h.times) > 0 && h.r.IntN(4) == 0 {
		return h.times[h.r.IntN(len(h.times))]
	}
	t := h.from.Add(time.Duration(h.r.Int64N(int64(48 * time.Hour)))).Truncate(time.Microsecond)
	switch h.r.IntN(6) {
	case 0:
		t = t.Truncate(time.Hour)
	case 1:
		t = t.Truncate(time.Hour).Add(-time.Microsecond)
	}
	return t
}

// book writes n transfers in one statement: income, and what is given back, matured or refused.
func (h *history) book(n int) {
	h.T.Helper()
	var ids, debits, credits []pgtype.UUID
	var amounts []int64
	var times []time.Time
	entry := id.New[id.LedgerTx]()
	for range n {
		at := h.at()
		h.times = append(h.times, at)
		from, to := h.debits[h.r.IntN(len(h.debits))], h.pending
		if h.r.IntN(4) == 0 {
			from, to = to, from
		}
		ids = append(ids, idAround(h.r, at))
		debits, credits = append(debits, pgtype.UUID{
			Bytes: from.UUID(),
			Valid: true,
		}), append(credits, pgtype.UUID{Bytes: to.UUID(), Valid: true})
		amounts, times = append(amounts, 1+h.r.Int64N(1000)), append(times, at)
	}
	h.Tx(func(ctx context.Context, tx *db.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO ledger_tx (id, kind, key) VALUES ($1, 'topup', $2)", entry,
			entry.String()); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO ledger_transfer (id, tx_id, debit_account_id, credit_account_id, currency,
			amount, created_at)
			SELECT unnest($1::uuid[]), $2, unnest($3::uuid[]), unnest($4::uuid[]), 'EUR', unnest($5::bigint[]),
			unnest($6::timestamptz[])`,
			ids, entry, debits, credits, amounts, times)
		return err
	})
}

// idAround returns an id as a server makes it whose clock is up to half an hour off.
func idAround(r *rand.Rand, at time.Time) pgtype.UUID {
	b := uuid.New()
	at = at.Add(time.Duration(r.Int64N(int64(time.Hour))) - 30*time.Minute)
	binary.BigEndian.PutUint64(b[:8], uint64(at.UnixMilli())<<16|0x7000|uint64(r.IntN(1<<12)))
	return pgtype.UUID{Bytes: b, Valid: true}
}

const earnedSlowly = `
	SELECT coalesce(sum(t.amount), 0)::bigint FROM ledger_account h JOIN ledger_transfer t ON t.credit_account_id = h.id
	JOIN ledger_account r ON r.id = t.debit_account_id
	WHERE h.kind = 'host_pending' AND h.org_id = $1 AND t.created_at > $2
	  AND ($3::uuid IS NULL OR r.org_id = $3 AND r.kind IN ('renter_hold', 'renter_wallet', 'bond_hold'))`

const earnedFromSlowly = `
	SELECT (coalesce((SELECT sum(t.amount) FROM ledger_account r JOIN ledger_transfer t ON t.debit_account_id = r.id JOIN
	ledger_account h ON h.id = t.credit_account_id
	                  WHERE r.org_id = $2 AND r.kind IN ('renter_hold', 'renter_wallet', 'bond_hold') AND h.kind =
	'host_pending' AND h.org_id = $1 AND t.created_at <= $3), 0)
	      - coalesce((SELECT sum(t.amount) FROM ledger_account r JOIN ledger_transfer t ON t.credit_account_id = r.id JOIN
	ledger_account h ON h.id = t.debit_account_id
	                  WHERE r.org_id = $2 AND r.kind IN ('renter_hold', 'renter_wallet', 'bond_hold') AND h.kind =
	'host_pending' AND h.org_id = $1), 0))::bigint`

const disputedSlowly = `
	SELECT d.id, sum(t.amount)::bigint, coalesce(sum(t.amount) FILTER (WHERE t.created_at > $2), 0)::bigint,
	       coalesce(sum(t.amount) FILTER (WHERE t.created_at <= v.through), 0)::bigint
	FROM dispute d
	JOIN ledger_account r ON r.org_id = d.org_id AND r.kind IN ('renter_hold', 'renter_wallet', 'bond_hold') AND
	r.currency = d.currency
	JOIN ledger_transfer t ON t.debit_account_id = r.id AND t.created_at >= d.paid_at
	JOIN ledger_account h ON h.id = t.credit_account_id AND h.kind = 'host_pending' AND h.owner = $1
	LEFT JOIN payout_review v ON v.host_org_id = $1 AND v.renter_org_id = d.org_id AND v.currency = d.currency
	GROUP BY d.id ORDER BY d.org_id, d.paid_at DESC, d.id`

func (h *history) number(sql string, args ...any) (n money.Nano) {
	h.T.Helper()
	if err := h.DB.Pool.QueryRow(h.T.Context(), sql, args...).Scan(&n); err != nil {
		h.T.Fatal(err)
	}
	return n
}

// compare asks both for random moments.
func (h *history) compare(what string) {
	h.T.Helper()
	q, ctx := h.DB.Q, h.T.Context()
	for range 25 {
		at := h.at()
		fast, err := earnedSince(ctx, q, h.operator, eur, at)
		if slow := h.number(earnedSlowly, h.operator, at, nil); err != nil || fast != slow {
			h.T.Fatalf("%s: earned since %s: %d, %v; the postings say %d", what, at, fast, err, slow)
		}
		p := h.payers[h.r.IntN(len(h.payers))]
		got, want := h.number("SELECT payout_earned_from($1, $2, 'EUR', $3)", h.operator, p, at),
			h.number(earnedFromSlowly, h.operator, p, at)
		if got != want {
			h.T.Fatalf("%s: earned from %s until %s: %d; the postings say %d", what, p, at, got, want)
		}
		got = h.number("SELECT operator_earned_after($1, $2, 'EUR', $3)", h.operator, p, at)
		if want = h.number(earnedSlowly, h.operator, at, p); got != want {
			h.T.Fatalf("%s: earned from %s after %s: %d; the postings say %d", what, p, at, got, want)
		}
		cutoff := h.at()
		disputes, err := claim.Disputes(ctx, q, eur, cutoff, h.operator)
		if err != nil {
			h.T.Fatal(err)
		}
		rows := disputes[h.operator]
		var slow []claim.Dispute
		all, err := h.DB.Pool.Query(ctx, disputedSlowly, h.operator, cutoff)
		if err != nil {
			h.T.Fatal(err)
		}
		for all.Next() {
			var d claim.Dispute
			var name string
			if err := all.Scan(&name, &d.Earned, &d.Young, &d.Reviewable); err != nil {
				h.T.Fatal(err)
			}
			slow = append(slow, d)
		}
		if len(slow) != len(rows) {
			h.T.Fatalf("%s: %d disputes; the postings say %d", what, len(rows), len(slow))
		}
		for i, s := range slow {
			if f := rows[i]; f.Earned != s.Earned || f.Young != s.Young || f.Reviewable != s.Reviewable {
				h.T.Fatalf("%s: dispute %d, cutoff %s: %+v; the postings say %+v", what, i, cutoff, f, s)
			}
		}
	}
}

// disputes and reviews of each payer, at random moments of the history.
func (h *history) disputes() {
	h.T.Helper()
	for i, p := range h.payers {
		for j := range 2 {
			h.Exec(`INSERT INTO dispute (id, org_id, invoice_id, kind, state, amount, held, currency, reason, paid_at) VALUES
				($1, $2, 'in_1', 'dispute', 'open', 500, 0, 'EUR', '', $3)`,
				fmt.Sprintf("dp_%d_%d", i, j), p, h.at())
		}
		if i > 0 {
			h.Exec(`INSERT INTO payout_review (id, host_org_id, renter_org_id, currency, reasons, base, through) VALUES ($1, $2,
				$3, 'EUR', '{card}', 0, $4)`,
				id.New[id.PayoutReview](), h.operator, p, h.at())
		}
	}
}

// What is added up as it is booked is what the postings add up to, whatever is booked in which order, by clocks that
// are off, at whatever moment one asks.
func TestEarnings_HourlySums(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			h := newHistory(t, seed)
			h.book(10)
			h.disputes()
			for i := range 12 {
				h.book(1 + h.r.IntN(40))
				h.compare(fmt.Sprint("after batch ", i))
			}
		})
	}
}

// A database of before the sums has them after its migration, also when it was cut off or begun again, and while others
// book.
func TestEarnings_OldOnesAdded(t *testing.T) {
	t.Parallel()
	text, err := migrations.FS.ReadFile("00191_operator_earning_fill.sql")
	if err != nil {
		t.Fatal(err)
	}
	fill := string(regexp.MustCompile(`(?s)DO \$\$.*?END \$\$;`).Find(text))
	h := newHistory(t, 7)
	h.Exec("ALTER TABLE ledger_transfer DISABLE TRIGGER ledger_transfer_earnings")
	h.book(60)
	h.disputes()
	h.Exec("ALTER TABLE ledger_transfer ENABLE TRIGGER ledger_transfer_earnings")
	h.Exec("TRUNCATE operator_earning_since; TRUNCATE operator_earning_filled")
	h.Exec("INSERT INTO operator_earning_since SELECT max(created_at) FROM ledger_transfer")
	old := h.from
	h.from, h.times = h.from.Add(49*time.Hour), nil // what follows is later than all of it
	h.book(30)
	h.Exec("ALTER TABLE operator_earning DISABLE TRIGGER USER; ALTER TABLE operator_earning_hour DISABLE TRIGGER USER")
	h.Exec(fill)
	h.from = old
	h.compare("filled")
	h.Exec(fill)
	h.compare("filled twice")
	h.book(30)
	h.compare("and went on")
}

// The process that posts is killed at each statement in turn; the sums and the postings agree after each death.
func TestEarnings_KilledPoster(t *testing.T) {
	t.Parallel()
	d, k := dbtest.NewMortal(t)
	all := billingtest.New(t, d)
	w := &world{all, all.Org()}
	h := &history{world: w, r: rand.New(rand.NewPCG(3, 3))}
	renter := w.Org()
	w.Move(ledger.StripeClearing(eur), ledger.Wallet(renter, eur), 1e9)
	deaths := 0
	for n := int64(1); ; n++ {
		if n > 100 {
			t.Fatal("a posting takes more than 100 statements")
		}
		k.Left.Store(n)
		err := d.InTx(t.Context(), func(ctx context.Context, tx *db.Tx) error {
			wallet, pending := ledger.Wallet(renter, eur), ledger.HostPending(w.operator, eur)
			_, err := ledger.PostAll(ctx, tx, []ledger.Entry{
				{
					Kind:      "usage",
					Key:       fmt.Sprint("usage:", n),
					Transfers: []ledger.Transfer{{Debit: wallet, Credit: pending, Amount: 70}},
				},
				{
					Kind:      "service_credit",
					Key:       fmt.Sprint("credit:", n),
					Transfers: []ledger.Transfer{{Debit: pending, Credit: wallet, Amount: 30}},
				},
			})
			return err
		})
		done := k.Left.Swap(0) > 0
		if err != nil {
			deaths++
		}
		got := h.number("SELECT payout_earned_from($1, $2, 'EUR', 'infinity')", w.operator, renter)
		if want := h.number(earnedFromSlowly, w.operator, renter, time.Now().Add(time.Hour)); got != want {
			t.Fatalf("killed at statement %d: %d; the postings say %d", n, got, want)
		}
		if done {
			break
		}
	}
	if deaths < 4 {
		t.Fatalf("%d deaths: the killer does not kill", deaths)
	}
}

// Usual holdbacks end with whole hours, so that no posting is read to know what is past them; they are never shorter
// than said.
func TestEarnings_HoldbackEndsWithAnHour(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 22, 14, 37, 5, 0, time.UTC)
	if got, want := cutoffAt(now, DefaultHoldback), time.Date(2026, 11, 15, 13, 59, 59, 999999000,
		time.UTC); !got.Equal(want) {
		t.Errorf("%s, want %s", got, want)
	}
	if got := cutoffAt(now, time.Minute); !got.Equal(now.Add(-time.Minute)) {
		t.Errorf("a short holdback: %s", got)
	}
}
