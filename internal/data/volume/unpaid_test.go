package volume

import (
	"context"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/billing/owed"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// dear is a price at which a stored MB costs 1.00 an hour.
const dear = 1000 * money.Unit

// elapse lets time pass for what is stored, and not paid for.
func (w *world) elapse(d time.Duration) {
	w.t.Helper()
	us := d.Microseconds()
	for _, set := range []string{
		"data_level SET from_at = from_at - $1::bigint * interval '1 microsecond'",
		"data_price SET from_at = from_at - $1::bigint * interval '1 microsecond'",
		`data_meter SET through_at = through_at - $1::bigint * interval '1 microsecond',
			next_at = next_at - $1::bigint * interval '1 microsecond',
			kept_until = kept_until - $1::bigint * interval '1 microsecond',
			unpaid_since = unpaid_since - $1::bigint * interval '1 microsecond'`,
		"volume SET hidden_at = hidden_at - $1::bigint * interval '1 microsecond'",
	} {
		w.Exec("WITH q AS (SELECT set_config('session_replication_role', 'replica', true)) UPDATE "+set+" FROM q", us)
	}
}

// filled makes a volume with a snapshot of 1 MB and returns it with the cluster that has it.
func (w *world) filled() (Volume, id.Cluster) {
	w.t.Helper()
	vol := w.create("data")
	cl, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	_, err = a.snapshot(map[string][]byte{"f": noise(1_000_000)})
	w.Must(err)
	return vol, cl
}

// erase runs the jobs and returns how many volumes were hidden or erased.
func (w *world) erase() int {
	w.t.Helper()
	_, err := w.v.Meters.Charge(w.t.Context())
	w.Must(err)
	n, err := w.v.Arrears.Erase(w.t.Context())
	w.Must(err)
	return n
}

func (w *world) get(vol id.Volume) Volume {
	w.t.Helper()
	v, err := w.v.Catalog.Get(w.t.Context(), w.who.Org, vol)
	w.Must(err)
	return v
}

func (w *world) owes() owed.Storage {
	w.t.Helper()
	s, err := owed.Read(w.t.Context(), w.d.Q, w.who.Org)
	w.Must(err)
	return s
}

// notices returns how many notices have a key with a prefix.
func (w *world) notices(prefix string) (n int) {
	w.t.Helper()
	w.Must(w.d.Pool.QueryRow(w.t.Context(), `SELECT count(*) FROM notice
		WHERE org_id = $1 AND starts_with(dedupe_key, $2)`, w.who.Org, prefix).Scan(&n))
	return n
}

// A volume that is not paid for is hidden after 30 days, is back once it is paid, and is erased 7 days later otherwise.
// Notices come when it is unpaid, 7 days and a day before.
func TestUnpaid_HiddenThenErased(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: dear})
	vol, cl := w.filled()
	w.release(cl)
	w.Exec("UPDATE cluster SET ended_at = ended_at - interval '1 hour'") // its host has nothing more to store
	w.elapse(time.Hour)
	days := func(n int) { w.elapse(time.Duration(n) * 24 * time.Hour) }
	if w.erase() != 0 || w.notices("storage_unpaid:") != 1 {
		t.Fatalf("%d notices", w.notices("storage_unpaid:"))
	}
	if v := w.get(vol.ID); v.Owed == 0 || v.HidesAt == nil || v.ErasesAt.Sub(*v.HidesAt) != hiddenLife {
		t.Fatalf("%+v", v)
	}
	for _, step := range []struct{ days, notices int }{{23, 2}, {6, 3}} {
		days(step.days)
		if n := w.erase(); n != 0 || w.notices("storage_unpaid:") != step.notices {
			t.Fatalf("%d days later %d erased, %d notices", step.days, n, w.notices("storage_unpaid:"))
		}
	}
	hidden := func() {
		t.Helper()
		if n := w.erase(); n != 1 || w.get(vol.ID).HiddenAt == nil {
			t.Fatalf("%d hidden: %+v", n, w.get(vol.ID))
		}
	}
	days(1)
	hidden()
	for what, err := range map[string]error{
		"read": func() error { _, err := w.v.Files.Tree(t.Context(), w.who.Org, vol.ID, 0); return err }(),
		"download": func() error {
			_, err := w.v.Transfers.Open(t.Context(), w.who, vol.ID, NewTransfer{
				ID: id.New[id.DataSession](), Direction: Download,
			})
			return err
		}(),
		"clone": func() error {
			_, _, err := w.v.Snapshots.Clone(t.Context(), w.who, vol.ID, 0, NewVolume{Name: "copy"}, idem.Request{})
			return err
		}(),
	} {
		if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "hidden") {
			t.Errorf("%s a hidden volume: %v", what, err)
		}
	}
	days(6)
	if n := w.erase(); n != 0 {
		t.Fatalf("%d erased within 7 days", n)
	}
	w.Fund(w.who.Org, 2000*money.Unit)
	n := w.erase()
	if v := w.get(vol.ID); n != 0 || v.HiddenAt != nil || v.Owed != 0 || w.notices("storage_shown:") != 1 {
		t.Fatalf("paid: %d erased, %+v", n, v)
	}
	_, err := w.v.Files.Tree(t.Context(), w.who.Org, vol.ID, 0)
	w.Must(err)

	days(60) // what is in the wallet is used up
	w.erase()
	days(31)
	hidden()
	days(7)
	if n := w.erase(); n != 1 {
		t.Fatalf("%d erased", n)
	}
	if _, err := w.v.Catalog.Get(t.Context(), w.who.Org, vol.ID); !fault.Is(err, fault.NotFound) {
		t.Fatalf("erased: %v", err)
	}
}

// Nothing is hidden while a cluster has the volume, a payment is disputed, or no invoice is overdue; nor if credit has
// arrived that was not charged yet. One volume that cannot be handled does not keep the others.
func TestUnpaid_NotErasedWrongly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: dear})
	vol, cl := w.filled()
	w.elapse(time.Hour)
	w.erase()
	w.elapse(31 * 24 * time.Hour)
	kept := func(why string) {
		t.Helper()
		if n := w.erase(); n != 0 || w.get(vol.ID).HiddenAt != nil {
			t.Fatalf("%s: %d hidden or erased", why, n)
		}
	}
	kept("mounted")
	w.Exec("UPDATE cluster SET ended_at = clock_timestamp() WHERE id = $1", cl)
	kept("its host may store the last snapshot")
	w.release(cl)
	w.Exec("UPDATE cluster SET ended_at = ended_at - interval '1 hour' WHERE id = $1", cl)
	w.Exec(`INSERT INTO dispute (id, org_id, invoice_id, amount, held, currency, reason, state, paid_at, kind)
		VALUES ('dp_1', $1, 'in_1', 1, 0, 'USD', 'fraudulent', 'open', now(), 'dispute')`, w.who.Org)
	kept("disputed")
	w.Exec("UPDATE dispute SET state = 'lost'")
	kept("a dispute has just ended")
	w.elapse(23 * 24 * time.Hour)
	kept("a dispute ended 23 days ago")
	w.Exec(`INSERT INTO postpaid_org (org_id, currency, state, credit_limit, reason, changed_by)
		VALUES ($1, 'USD', 'on', 0, '', $2)`, w.who.Org, w.who.User)
	w.elapse(8 * 24 * time.Hour)
	w.erase() // the meter is due once an hour, and notes what pays by invoice
	kept("an invoice is not due")
	w.Exec("UPDATE postpaid_org SET stopped = 'not paid: invoice 1'")
	w.elapse(31 * 24 * time.Hour)
	w.Fund(w.who.Org, 3000*money.Unit) // the meter is not charged before the volume is looked at
	n, err := w.v.Arrears.Erase(t.Context())
	if n != 0 || err != nil || w.owes().Since != nil {
		t.Fatalf("credit has arrived: %d hidden, %v, owes %+v", n, err, w.owes())
	}
	w.elapse(300 * 24 * time.Hour)
	w.erase()
	w.elapse(31 * 24 * time.Hour)
	other := w.SignUp("other")
	made, _, err := w.v.Catalog.Create(t.Context(), other, NewVolume{Name: "data", SizeGB: 1}, idem.Request{})
	w.Must(err)
	w.Exec(`INSERT INTO data_meter (domain_id, through_at, unpaid_since, next_at) SELECT domain_id, 'infinity',
		now() - interval '40 days', 'infinity' FROM volume WHERE id = $1`, made.ID) // cannot be charged
	if n, err := w.v.Arrears.Erase(t.Context()); n != 1 || err == nil {
		t.Fatalf("beside one that cannot be handled, %d are hidden: %v", n, err)
	}
}

// What the wallet has is taken, to the nano-unit, as soon as it is there; what is paid pays for the oldest storage; and
// what is owed is neither lent to clusters nor part of what budgets leave.
func TestUnpaid_PartIsTaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: dear})
	limit := money.Unit
	_, _, err := budget.New(w.d, "USD").Set(t.Context(), w.who, budget.Change{Limits: budget.Limits{Cap: &limit}},
		idem.Request{})
	w.Must(err)
	w.filled()
	w.elapse(100 * time.Hour)
	w.erase()
	w.elapse(600 * time.Hour)
	w.erase()
	before := w.owes()
	if err := before.Admit(time.Now(), "USD"); !fault.Is(err, fault.InsufficientFunds) {
		t.Fatalf("may rent: %v", err)
	}
	const paid = 500*money.Unit + 7
	w.Fund(w.who.Org, paid)
	_, err = w.v.Meters.Charge(t.Context())
	w.Must(err)
	after := w.owes()
	wallet, err := ledger.Balance(t.Context(), w.d.Q, ledger.Wallet(w.who.Org, "USD"))
	w.Must(err)
	// A few seconds more were stored since.
	if more := after.Amount - (before.Amount - paid); wallet != 0 || more < 0 || more > money.Unit {
		t.Errorf("wallet %s, owes %s of %s", wallet, after.Amount, before.Amount)
	}
	if hours := time.Since(*after.Since).Hours() - float64(after.Amount)/float64(money.Unit); hours < -1 || hours > 1 {
		t.Errorf("%s are owed, since %s", after.Amount, after.Since)
	}
	list, err := budget.List(t.Context(), w.d.Q, w.who.Org)
	w.Must(err)
	if list[0].Committed != paid || *list[0].Left() != 0 {
		t.Errorf("the budget has counted %s, and %s are left", list[0].Committed, *list[0].Left())
	}
	w.Fund(w.who.Org, 300*money.Unit)
	_, err = w.v.Meters.Charge(t.Context())
	w.Must(err)
	if s := w.owes(); s.Since != nil || s.Amount != 0 {
		t.Errorf("paid: %+v", s)
	}
	problems, err := CheckMeters(t.Context(), w.d)
	if err != nil || len(problems) > 0 {
		t.Errorf("%q %v", problems, err)
	}
}

// Disputed money is not taken: the wallet is charged for what is beyond it.
func TestUnpaid_ReservedMoneyStays(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: dear})
	w.filled()
	w.Fund(w.who.Org, 100*money.Unit)
	w.Exec(`INSERT INTO dispute (id, org_id, invoice_id, amount, held, currency, reason, state, paid_at, kind)
		VALUES ('dp_1', $1, 'in_1', $2, 0, 'USD', 'fraudulent', 'open', now(), 'dispute')`, w.who.Org, 60*money.Unit)
	w.Tx(func(ctx context.Context, tx *db.Tx) error {
		wallet := ledger.Wallet(w.who.Org, "USD")
		books, err := ledger.Lock(ctx, tx, wallet)
		if err != nil {
			return err
		}
		return books.Reserve(ctx, wallet, 60*money.Unit)
	})
	w.elapse(70 * time.Hour)
	w.erase()
	wallet, err := ledger.Balance(t.Context(), w.d.Q, ledger.Wallet(w.who.Org, "USD"))
	if err != nil || wallet != 60*money.Unit || w.owes().Amount < 30*money.Unit {
		t.Errorf("wallet %s, owes %+v: %v", wallet, w.owes(), err)
	}
}

// Levels and prices cannot be changed, and what does not follow from them is found.
func TestCheckMeters_FindsWhatDiffers(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: dear})
	w.filled()
	w.Fund(w.who.Org, 100*money.Unit)
	w.elapse(time.Hour)
	w.erase()
	w.v.Meters.price = 2 * dear
	w.elapse(time.Hour)
	w.erase()
	check := func(what string, want int) {
		t.Helper()
		problems, err := CheckMeters(t.Context(), w.d)
		if err != nil || len(problems) != want {
			t.Errorf("%s: %q %v", what, problems, err)
		}
	}
	check("untouched", 0)
	for _, sql := range []string{"UPDATE data_level SET bytes = 1", "DELETE FROM data_level", "TRUNCATE data_level",
		"UPDATE data_price SET price = 1", "DELETE FROM data_price", "TRUNCATE data_price"} {
		if _, err := w.d.Pool.Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "history never changes") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	for what, set := range map[string][2]string{
		"a level":     {"data_level SET bytes = bytes - 1", "data_level SET bytes = bytes + 1"},
		"a price":     {"data_price SET price = price - 1", "data_price SET price = price + 1"},
		"the meter":   {"data_meter SET numerator = numerator + 1", "data_meter SET numerator = numerator - 1"},
		"what it has": {"data_meter SET posted = posted - 1", "data_meter SET posted = posted + 1"},
	} {
		for i, want := range []int{1, 0} {
			w.Exec("WITH q AS (SELECT set_config('session_replication_role', 'replica', true)) UPDATE " + set[i] + " FROM q")
			check(what, want)
		}
	}
	w.Exec("UPDATE data_meter SET posted = posted - 1")
	if n, err := w.v.Meters.Verify(t.Context()); n != 1 || err != nil {
		t.Errorf("%d found: %v", n, err)
	}
}

// What is paid pays for the oldest storage.
func TestUnpaidFrom_TheOldestIsPaidFirst(t *testing.T) {
	t.Parallel()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	at := func(s int) time.Time { return begin.Add(time.Duration(s) * time.Second) }
	levels := []level{{at(0), 10}, {at(100), 0}, {at(200), 30}}
	cost := func(byteSeconds int64) *big.Int { return big.NewInt(byteSeconds * 1_000_000 * 5) }
	for unpaid, want := range map[int64]int{3000: 200, 1500: 250, 3001: 99, 4000: 0, 9999: 0, 30: 299} {
		got := unpaidFrom(levels, at(0), at(300), 5, cost(unpaid))
		if d := got.Sub(at(want)); d < 0 || d >= time.Second {
			t.Errorf("%d byte seconds are unpaid since %s, want %d s", unpaid, got.Sub(begin), want)
		}
	}
	if got := unpaidFrom(levels, at(250), at(300), 5, cost(4000)); !got.Equal(at(250)) {
		t.Errorf("%s is before the first moment that was unpaid", got)
	}
}
