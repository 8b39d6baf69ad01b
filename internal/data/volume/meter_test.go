package volume

import (
	"math/big"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
)

// oracle adds up the microseconds of each level, written without regard to byteMicros: it sorts nothing, and asks of
// every interval between two changes how many bytes there were in its middle.
func oracle(levels []level, from, until time.Time) *big.Int {
	at := []int64{from.UnixMicro(), until.UnixMicro()}
	for _, l := range levels {
		if us := l.from.UnixMicro(); us > from.UnixMicro() && us < until.UnixMicro() {
			at = append(at, us)
		}
	}
	for i := range at { // selection sort: few of them
		for j := i + 1; j < len(at); j++ {
			if at[j] < at[i] {
				at[i], at[j] = at[j], at[i]
			}
		}
	}
	sum := new(big.Int)
	for i := 1; i < len(at); i++ {
		bytes := int64(0)
		for _, l := range levels {
			if l.from.UnixMicro() <= at[i-1] {
				bytes = l.bytes // the latest that began
			}
		}
		sum.Add(sum, new(big.Int).Mul(big.NewInt(bytes), big.NewInt(at[i]-at[i-1])))
	}
	return sum
}

// mutants are meters that are wrong by little.
var mutants = map[string]func([]level, time.Time, time.Time) *big.Int{
	"the level before the interval is left out": func(l []level, from, until time.Time) *big.Int {
		for len(l) > 0 && l[0].from.Before(from) {
			l = l[1:]
		}
		return byteMicros(l, from, until)
	},
	"the last level is left out": func(l []level, from, until time.Time) *big.Int {
		return byteMicros(l[:len(l)-1], from, until)
	},
	"milliseconds": func(l []level, from, until time.Time) *big.Int {
		return byteMicros(l, from.Truncate(time.Millisecond), until.Truncate(time.Millisecond))
	},
	"not cut off at the beginning": func(l []level, _, until time.Time) *big.Int {
		return byteMicros(l, l[0].from, until)
	},
}

// GB-seconds equal the oracle over more than a million volume hours, however the time is cut into postings.
func TestTheMeterEqualsTheOracle(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(17, 4))
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	caught := map[string]int{}
	hours := 0.0
	for range 3000 {
		levels := []level{{begin, rnd.Int64N(1 << 44)}}
		at := begin
		for range rnd.IntN(30) {
			at = at.Add(time.Duration(1+rnd.Int64N(int64(48*time.Hour/time.Microsecond))) * time.Microsecond)
			levels = append(levels, level{at, rnd.Int64N(1 << 44)})
		}
		end := at.Add(time.Duration(1+rnd.Int64N(int64(48*time.Hour/time.Microsecond))) * time.Microsecond)
		hours += end.Sub(begin).Hours()
		whole := new(big.Int)
		for from := begin; from.Before(end); {
			until := from.Add(time.Duration(1+rnd.Int64N(int64(72*time.Hour/time.Microsecond))) * time.Microsecond)
			if until.After(end) {
				until = end
			}
			// As DataLevels returns them: the one that holds at from, and those that begin before until.
			var part []level
			for _, l := range levels {
				if !l.from.After(from) {
					part = []level{l}
				} else if l.from.Before(until) {
					part = append(part, l)
				}
			}
			whole.Add(whole, byteMicros(part, from, until))
			for name, f := range mutants {
				if f(part, from, until).Cmp(oracle(levels, from, until)) != 0 {
					caught[name]++
				}
			}
			from = until
		}
		if want := oracle(levels, begin, end); whole.Cmp(want) != 0 {
			t.Fatalf("%s byte microseconds, want %s", whole, want)
		}
	}
	if hours < 1e6 {
		t.Errorf("only %.0f volume hours", hours)
	}
	for name := range mutants {
		if caught[name] == 0 {
			t.Errorf("nothing notices the mutant %q", name)
		}
	}
}

// What is in the ledger is the whole nano-units of the meter, and without credit nothing is lost: it is made up for.
func TestStorageIsPosted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, Config{PricePerGBHour: 68_493_000})
	vol := w.create("data")
	_, lease, err := w.rent(w.hosts[0], agentapi.MountRW, vol.ID)
	w.Must(err)
	a := w.agent(w.hosts[0], lease, vol.ID)
	w.Must(a.open(agentapi.MountRW))
	_, err = a.snapshot(map[string][]byte{"f": noise(100_000)})
	w.Must(err)
	// As if it had been stored for 30 days.
	w.elapse(30 * 24 * time.Hour)
	charge := func() (posted, due int64, unpaid *time.Time) {
		t.Helper()
		if n, err := w.v.Meters.chargeDue(t.Context(), time.Now().Add(2*ChargeEvery)); n != 1 || err != nil {
			t.Fatalf("%d charged: %v", n, err)
		}
		var domain id.DataDomain
		w.Must(w.d.Pool.QueryRow(t.Context(), `SELECT domain_id, posted, (numerator / 3600000000000000000)::bigint, unpaid_since
			FROM data_meter`).Scan(&domain, &posted, &due, &unpaid))
		return posted, due, unpaid
	}
	if posted, _, unpaid := charge(); posted != 0 || unpaid == nil {
		t.Fatalf("without credit %d are posted, unpaid since %v", posted, unpaid)
	}
	if _, err := a.snapshot(map[string][]byte{"f": noise(10)}); code(err) != agentapi.VolumeQuota {
		t.Fatalf("a snapshot of who does not pay: %v", err)
	}
	w.Fund(w.who.Org, 10*money.Unit)
	posted, due, unpaid := charge()
	if unpaid != nil || posted < due-1 || posted > due || posted < 4_900_000 {
		t.Fatalf("%d posted of %d, unpaid since %v", posted, due, unpaid)
	}
	var sum int64
	w.Must(w.d.Pool.QueryRow(t.Context(), `SELECT sum(t.amount)::bigint FROM ledger_tx x JOIN ledger_transfer t ON
		t.tx_id = x.id WHERE x.kind = 'storage'`).Scan(&sum))
	if sum != posted {
		t.Fatalf("%d in the ledger, %d by the meter", sum, posted)
	}
	// On statements each posting has what was stored since the one before, here 30 days and less than a minute.
	w.Exec("UPDATE data_meter SET numerator = numerator + 5::numeric * 3600000000000000000")
	charge()
	now := time.Now()
	list, err := PostedTo(t.Context(), w.d.Q, w.who.Org, "USD", id.UUIDs(id.First[id.DataDomain]())[0],
		now.Add(-time.Hour), now.Add(time.Hour))
	if err != nil || len(list) != 2 || list[0].Amount != money.Nano(posted) || list[1].Amount < 5 {
		t.Fatalf("%+v %v", list, err)
	}
	if list[0].Names != "data" || !strings.HasPrefix(GBHours(list[0].ByteMicros), "0.072") ||
		GBHours(list[1].ByteMicros) > "0.000002" {
		t.Fatalf("%s and %s of %q", GBHours(list[0].ByteMicros), GBHours(list[1].ByteMicros), list[0].Names)
	}
}
