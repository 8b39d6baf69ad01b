package cluster_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/account"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
)

// envQuotas says how many steps TestQuota_IsTheOracles plays.
const envQuotas = "MUSTER_PROOF_QUOTAS"

// The rules of the played histories: so small that each history meets its limits often.
const (
	quotaWindow  = 6 * time.Hour
	quotaFree    = 1200 // GPU-seconds
	quotaReserve = 120_000
	quotaSlack   = 2_000 // GPU-milliseconds by which the times of the oracle and of the server may differ
)

// quotaHold is a start or a quote that the oracle knows. Times are unix ms; to is 0 while it lasts.
type quotaHold struct {
	org      int
	from, to int64
	expires  int64 // of a quote; 0: a start
	gpus     int64
	cluster  id.Cluster
	quote    id.Quote
}

// quotaLink links an organisation with others that have the same key. ended is 0 while it lasts.
type quotaLink struct {
	org   int
	key   string
	ended int64
}

// quotaMove is what hosts earned from an organisation in an hour, or, if it is negative, what they gave back.
type quotaMove struct {
	org    int
	hour   int64
	amount money.Nano
}

// quotaField is what a history is played on, and what the oracle remembers of it.
type quotaField struct {
	*world
	r     *rand.Rand
	m     *market.Market
	users []account.Principal
	orgs  []id.Org
	holds []*quotaHold
	links []*quotaLink
	moves []*quotaMove

	allowed, refused, unclear, free, paid int
}

// Several organisations of a few people request quotes and rent, their starts fail or are released, they pay and get
// payments back, and members and cards come and go. Each of their rents and quotes is allowed or refused as an oracle
// does, which adds up what the linked organisations held and paid.
func TestQuota_IsTheOracles(t *testing.T) {
	t.Parallel()
	steps := 160
	if s := os.Getenv(envQuotas); s != "" {
		var err error
		if steps, err = strconv.Atoi(s); err != nil || steps < 1 {
			t.Fatalf("%s=%q: want a number of steps", envQuotas, s)
		}
	}
	rules := fairness.StartRules{Window: quotaWindow, Free: quotaFree, Reserve: quotaReserve * time.Millisecond,
		MarketPPM: 1_000_000}
	w := newWorld(t, worldConfig{hosts: 8, gpus: 4, starts: rules})
	m, err := market.New(w.d, w.Box(), market.Config{Currency: usd, AllowSimulated: true, Starts: rules})
	w.must(err)
	f := &quotaField{world: w, r: rand.New(rand.NewPCG(uint64(steps), 7)), m: m}
	for i := range 5 {
		f.users = append(f.users, w.SignUp(fmt.Sprint("u", i)))
		f.orgs = append(f.orgs, f.users[i].Org)
		w.Fund(f.orgs[i], 1000*money.Unit)
	}
	for i := range f.orgs {
		f.member(i, max(0, i-2), account.RoleOwner) // the first user owns three of them
	}
	for step := range steps {
		f.step(step)
		if t.Failed() {
			return
		}
	}
	t.Logf("%d allowed (%d within the free quota, %d covered by payments), %d refused, %d too close to tell", f.allowed,
		f.free, f.paid, f.refused, f.unclear)
	if f.free == 0 || f.paid == 0 || f.refused == 0 || f.unclear > f.allowed+f.refused {
		t.Error("the histories do not meet the limits")
	}
}

func (f *quotaField) step(n int) {
	f.t.Helper()
	org := f.r.IntN(len(f.orgs))
	switch f.r.IntN(14) {
	case 0, 1, 2:
		f.rent(n, org)
	case 3, 4:
		f.quote(n, org)
	case 5, 6, 7:
		f.end()
	case 8, 9:
		f.pass(time.Duration(1+f.r.IntN(80*60_000)) * time.Millisecond)
	case 10:
		f.move(org, money.Unit*money.Nano(1+f.r.IntN(20))/10)
	case 11:
		f.giveBack()
	case 12:
		f.changeMember(org)
	case 13:
		f.saveCard(org)
	}
}

// now is PostgreSQL's clock (unix ms).
func (f *quotaField) now() (ms int64) {
	f.t.Helper()
	f.must(f.d.Pool.QueryRow(f.ctx, "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").Scan(&ms))
	return ms
}

func (f *quotaField) as(org int) account.Principal {
	p := f.users[0]
	p.Org = f.orgs[org]
	return p
}

// judged compares a decision, which was made after began (unix ms), with the oracle's. It reports whether the claim was
// allowed.
func (f *quotaField) judged(n, org int, gpus, began int64, err error, except id.Quote) bool {
	f.t.Helper()
	refusal := fault.From(err)
	limited := refusal != nil && refusal.Extra["limit"] == "start_quota"
	if err != nil && !limited {
		if refusal == nil || refusal.Kind != fault.NoCapacity && refusal.Kind != fault.QuotaExceeded {
			f.t.Fatalf("step %d: %v", n, err)
		}
		return false
	}
	free, covered := f.oracle(org, gpus, began, except, 0)
	may, same := free || covered, true
	for _, now := range []int64{began, f.now()} {
		for _, slack := range []int64{-quotaSlack, quotaSlack} {
			a, b := f.oracle(org, gpus, now, except, slack)
			same = same && (a || b) == may
		}
	}
	switch {
	case !same:
		f.unclear++
	case may == limited:
		f.t.Fatalf("step %d: organisation %d, %d GPUs: refused %t (%v); the oracle allows it: free %t, covered %t", n, org,
			gpus, limited, err, free, covered)
	case limited:
		f.refused++
	case free:
		f.free++
		f.allowed++
	default:
		f.paid++
		f.allowed++
	}
	return err == nil
}

// oracle decides whether an organisation may claim GPUs: because its circle held less than the free quota, or because
// payments cover what was held. slack is added to what is held.
func (f *quotaField) oracle(org int, gpus, now int64, except id.Quote, slack int64) (free, covered bool) {
	since := now - quotaWindow.Milliseconds()
	in := f.circle(org, since)
	var all, own, paid, ownPaid, week, ownWeek int64
	for _, h := range f.holds {
		if !in[h.org] || h.quote == except && !except.IsZero() {
			continue
		}
		end, ms := h.to, int64(0)
		switch {
		case h.expires > 0 && (end == 0 || end > h.expires): // a quote that is open, or has expired
			end = h.expires
			ms = end - h.from
		case end == 0:
			end, ms = now, min(quotaWindow.Milliseconds(), max(quotaReserve, now-h.from))
		default:
			ms = end - h.from
		}
		if end <= since {
			continue
		}
		if all += ms * h.gpus; h.org == org {
			own += ms * h.gpus
		}
	}
	for _, p := range f.moves {
		if in[p.org] && p.hour > now-7*24*3_600_000 {
			if week += int64(p.amount); p.org == org {
				ownWeek += int64(p.amount)
			}
			if p.hour > since {
				if paid += int64(p.amount); p.org == org {
					ownPaid += int64(p.amount)
				}
			}
		}
	}
	paid, ownPaid = max(paid, week*6/(7*24)), max(ownPaid, ownWeek*6/(7*24))
	worth := func(gpuMS int64) int64 { return gpuMS * int64(price) / 3600 }
	all, own = max(0, all+slack), max(0, own+slack)
	return all < quotaFree*1000, worth(all) <= paid || worth(own+gpus*quotaReserve) <= ownPaid
}

// circle returns the organisations that are linked with one, directly or through others.
func (f *quotaField) circle(org int, since int64) map[int]bool {
	in := map[int]bool{org: true}
	for grown := true; grown; {
		grown = false
		for _, a := range f.links {
			for _, b := range f.links {
				live := (a.ended == 0 || a.ended > since) && (b.ended == 0 || b.ended > since)
				if live && a.key == b.key && in[a.org] && !in[b.org] {
					in[b.org], grown = true, true
				}
			}
		}
	}
	return in
}

// rent starts a cluster: of a quote of the organisation, if there is an open one.
func (f *quotaField) rent(n, org int) {
	f.t.Helper()
	gpus := int64(1 + f.r.IntN(3))
	request := cluster.RentRequest{Spec: spec(1, int(gpus))}
	var quoted *quotaHold
	for _, h := range f.holds {
		if h.org == org && h.expires > f.now()+30_000 && h.to == 0 {
			quoted, gpus = h, h.gpus
			request = cluster.RentRequest{Quote: h.quote}
		}
	}
	var except id.Quote
	if quoted != nil {
		except = quoted.quote
	}
	began := f.now()
	c, _, err := f.clusters[0].Rentals.Rent(f.ctx, f.as(org), request, idem.Request{})
	if !f.judged(n, org, gpus, began, err, except) {
		return
	}
	f.holds = append(f.holds, &quotaHold{org: org, from: c.CreatedAt.UnixMilli(), gpus: gpus, cluster: c.ID})
	if quoted != nil {
		quoted.to = f.ended("quote WHERE id = $1", quoted.quote)
	}
}

func (f *quotaField) quote(n, org int) {
	f.t.Helper()
	gpus := int64(1 + f.r.IntN(3))
	began := f.now()
	q, _, err := f.m.Quote(f.ctx, f.as(org), spec(1, int(gpus)), idem.Request{})
	if f.judged(n, org, gpus, began, err, id.Quote{}) {
		f.holds = append(f.holds, &quotaHold{org: org, from: q.CreatedAt.UnixMilli(), expires: q.ExpiresAt.UnixMilli(),
			gpus: gpus, quote: q.ID})
	}
}

// end returns a quote, or ends a start: it is released, fails, or runs and is released.
func (f *quotaField) end() {
	f.t.Helper()
	var open []*quotaHold
	for _, h := range f.holds {
		if h.to == 0 && (h.expires == 0 || h.expires > f.now()+30_000) {
			open = append(open, h)
		}
	}
	if len(open) == 0 {
		return
	}
	h := open[f.r.IntN(len(open))]
	if h.expires > 0 {
		_, err := f.m.ReturnQuote(f.ctx, f.as(h.org), h.quote)
		f.must(err)
		h.to = f.ended("quote WHERE id = $1", h.quote)
		return
	}
	switch f.r.IntN(3) {
	case 0:
		c := cluster.Cluster{ID: h.cluster}
		f.exec("UPDATE cluster SET start_deadline = clock_timestamp() - interval '1 ms' WHERE id = $1", c.ID)
		f.tick(c)
	default:
		f.must(errOf(f.clusters[0].Rentals.Release(f.ctx, f.as(h.org), h.cluster)))
	}
	h.to = f.ended("start_hold WHERE cluster_id = $1", h.cluster)
	// Its hosts are gone, so that its GPUs can be claimed again.
	f.exec("UPDATE gpu_claim SET ended_at = clock_timestamp(), end_reason = 'test' WHERE ended_at IS NULL AND ref IN "+
		"(SELECT id FROM lease WHERE cluster_id = $1)", h.cluster)
	f.exec("UPDATE lease SET gone_at = clock_timestamp() WHERE cluster_id = $1", h.cluster)
}

// ended returns when the server ended something (unix ms).
func (f *quotaField) ended(from string, of any) (ms int64) {
	f.t.Helper()
	f.must(f.d.Pool.QueryRow(f.ctx, "SELECT (extract(epoch FROM ended_at) * 1000)::bigint FROM "+from, of).Scan(&ms))
	return ms
}

// pass lets time go by: all that happened moves into the past.
func (f *quotaField) pass(d time.Duration) {
	f.t.Helper()
	ms := d.Milliseconds()
	for _, sql := range []string{
		"UPDATE cluster SET start_from = start_from - $1::bigint * interval '1 ms' WHERE start_from IS NOT NULL",
		"UPDATE start_hold SET ended_at = ended_at - $1::bigint * interval '1 ms'",
		"UPDATE quote SET created_at = created_at - $1::bigint * interval '1 ms', expires_at = expires_at - $1::bigint * " +
			"interval '1 ms', ended_at = ended_at - $1::bigint * interval '1 ms'",
		"UPDATE gpu_claim SET expires_at = expires_at - $1::bigint * interval '1 ms' WHERE ended_at IS NULL",
		"UPDATE circle_link SET ended_at = ended_at - $1::bigint * interval '1 ms' WHERE ended_at IS NOT NULL",
	} {
		f.exec(sql, ms)
	}
	f.Unguarded("UPDATE operator_earning_hour SET hour = hour - $1::bigint * interval '1 ms'", ms)
	for _, h := range f.holds {
		h.from -= ms
		for _, at := range []*int64{&h.to, &h.expires} {
			if *at > 0 {
				*at -= ms
			}
		}
	}
	for _, l := range f.links {
		if l.ended > 0 {
			l.ended -= ms
		}
	}
	for _, p := range f.moves {
		p.hour -= ms
	}
}

// move books that a host earned an amount from an organisation, or gave it back.
func (f *quotaField) move(org int, amount money.Nano) {
	f.t.Helper()
	wallet, earned := ledger.Wallet(f.orgs[org], usd), ledger.HostPending(f.operator.Org, usd)
	e := ledger.Entry{Kind: "usage", Key: "usage:" + id.New[id.Lease]().String()}
	if e.Transfers = []ledger.Transfer{{Debit: wallet, Credit: earned, Amount: amount}}; amount < 0 {
		e.Kind = "service_credit"
		e.Transfers = []ledger.Transfer{{Debit: earned, Credit: wallet, Amount: -amount}}
	}
	f.tx(func(ctx context.Context, tx *db.Tx) error {
		_, err := ledger.Post(ctx, tx, e)
		return err
	})
	hour := f.now() / 3_600_000 * 3_600_000
	f.moves = append(f.moves, &quotaMove{org: org, hour: hour, amount: amount})
}

// giveBack books that hosts give back to an organisation a part of what they earned from it.
func (f *quotaField) giveBack() {
	f.t.Helper()
	var net money.Nano
	org := f.r.IntN(len(f.orgs))
	for _, p := range f.moves {
		if p.org == org {
			net += p.amount
		}
	}
	if net > 0 {
		f.move(org, -max(1, net/money.Nano(1+f.r.IntN(3))))
	}
}

// member makes a user a member of an organisation.
func (f *quotaField) member(org, user int, role account.Role) {
	f.t.Helper()
	f.join(f.orgs[org], f.users[user], role)
	f.linkEnds(org, f.users[user].User.String())
	if role.Can(account.ScopeClusters) {
		f.links = append(f.links, &quotaLink{org: org, key: f.users[user].User.String()})
	}
}

// linkEnds ends a link of an organisation that lasts. One that had ended before is forgotten: the server keeps the last
// end only.
func (f *quotaField) linkEnds(org int, key string) {
	f.t.Helper()
	kept := f.links[:0]
	for _, l := range f.links {
		if l.org == org && l.key == key {
			if l.ended > 0 {
				continue
			}
			l.ended = f.now()
		}
		kept = append(kept, l)
	}
	f.links = kept
}

// changeMember gives a user another role in an organisation, or none.
func (f *quotaField) changeMember(org int) {
	f.t.Helper()
	user, roles := f.r.IntN(len(f.users)), append(account.Roles(), "")
	switch role := roles[f.r.IntN(len(roles))]; {
	case max(0, org-2) == user: // its owner stays
	case role == "":
		f.exec("DELETE FROM membership WHERE org_id = $1 AND user_id = $2", f.orgs[org], f.users[user].User)
		f.linkEnds(org, f.users[user].User.String())
	default:
		f.member(org, user, role)
	}
}

func (f *quotaField) saveCard(org int) {
	f.t.Helper()
	number := fmt.Sprint("card", f.r.IntN(40))
	f.world.saveCard(f.orgs[org], number)
	f.links = append(f.links, &quotaLink{org: org, key: number})
}
