package cluster

import (
	"testing"
	"time"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/money"
)

// The stop of a cluster is the earliest of all that may end it, and names that one.
func TestTheNextStopIsTheEarliest(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	const rate = money.Micro(1_000_000) // 1 per hour
	running := func(set func(*standing)) standing {
		s := standing{
			row: dbq.Cluster{
				State:     string(lifecycle.Running),
				Rate:      rate,
				Currency:  "USD",
				Project:   "p",
				RunningAt: in(-time.Hour),
				GoAt:      in(-time.Hour),
				RunUntil:  in(30 * time.Minute),
			},
			means: means{now: now, wallet: 10 * money.Unit, burn: map[string]money.Micro{"p": rate, "q": rate}},
		}
		set(&s)
		return s
	}
	seconds := func(n int64) *int64 { return &n }
	amount := func(n money.Nano) *money.Nano { return &n }
	limit := func(b budget.Budget) func(*standing) {
		return func(s *standing) { b.Currency = "USD"; s.means.budgets = []budget.Budget{b} }
	}
	for name, c := range map[string]struct {
		of    standing
		at    *time.Time
		cause client.StopCause
	}{
		"the wallet is shared by two clusters": {running(func(*standing) {}), in(5*time.Hour + 30*time.Minute),
			client.StopFunds},
		"an empty wallet: what is held is left": {running(func(s *standing) { s.means.wallet = 0 }), in(30 * time.Minute),
			client.StopFunds},
		"a wallet for years": {running(func(s *standing) { s.means.wallet = 1e6 * money.Unit }), nil, ""},
		"the longest duration": {running(func(s *standing) { s.row.MaxDurationS = seconds(2 * 3600) }), in(time.Hour),
			client.StopDuration},
		"its own budget": {running(func(s *standing) { s.row.Budget, s.cost = amount(3*money.Unit), money.Unit }),
			in(2 * time.Hour), client.StopBudget},
		"its own budget, all of it held": {running(func(s *standing) {
			s.row.Budget, s.cost = amount(money.Unit), money.Unit
		}), in(30 * time.Minute), client.StopBudget},
		"its project's budget": {running(limit(budget.Budget{Project: "p", Committed: money.Unit,
			Limits: budget.Limits{Cap: amount(2 * money.Unit)}})), in(90 * time.Minute), client.StopOrgBudget},
		"another project's budget": {running(limit(budget.Budget{Project: "q",
			Limits: budget.Limits{Cap: amount(0)}})), in(5*time.Hour + 30*time.Minute), client.StopFunds},
		"its organisation's budget, shared by two": {running(limit(budget.Budget{
			Limits: budget.Limits{Cap: amount(2 * money.Unit)}})), in(90 * time.Minute), client.StopOrgBudget},
		"the longest run of a budget": {running(limit(budget.Budget{Limits: budget.Limits{MaxDuration: seconds(3660)}})),
			in(time.Minute), client.StopDuration},
		"a host is taken back": {running(func(s *standing) { s.reclaim = *in(10 * time.Minute) }), in(10 * time.Minute),
			client.StopReclaim},
		"no host is found": {running(func(s *standing) {
			s.row.State, s.row.ReplaceUntil = string(lifecycle.Degraded), in(time.Minute)
		}), in(time.Minute), client.StopReplacement},
		"a restart takes too long": {running(func(s *standing) {
			s.row.State, s.row.GoAt, s.row.StartDeadline = string(lifecycle.Provisioning), nil, in(20*time.Minute)
		}), in(20 * time.Minute), client.StopStart},
		"not started": {standing{row: dbq.Cluster{State: string(lifecycle.Provisioning), MaxDurationS: seconds(60),
			StartDeadline: in(30 * time.Minute)}}, in(30 * time.Minute), client.StopStart},
	} {
		got := c.of.next()
		if got.cause != c.cause || !got.at.Equal(deref(c.at)) {
			t.Errorf("%s: %s because %q, want %s because %q", name, got.at, got.cause, deref(c.at), c.cause)
		}
	}
}

// A host that is taken back ends a cluster only if the cluster cannot go on without it.
func TestWhenATakenBackHostEndsACluster(t *testing.T) {
	t.Parallel()
	early := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	late := early.Add(time.Hour)
	for name, c := range map[string]struct {
		onFailure string
		nodes     []time.Time
		want      time.Time
	}{
		"none":                 {"fail", []time.Time{{}, {}}, time.Time{}},
		"one of two":           {"fail", []time.Time{{}, late}, late},
		"the first of two":     {"fail", []time.Time{late, early}, early},
		"another takes over":   {"replace", []time.Time{early, late}, time.Time{}},
		"the other goes on":    {"ignore", []time.Time{{}, early}, time.Time{}},
		"nobody is left later": {"ignore", []time.Time{late, early}, late},
	} {
		if got := reclaimed(c.onFailure, c.nodes); !got.Equal(c.want) {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// Every cause has words.
func TestEveryStopCauseHasWords(t *testing.T) {
	t.Parallel()
	for _, c := range client.StopCauses {
		if c.Why() == "" {
			t.Errorf("%s has no words", c)
		}
	}
}
