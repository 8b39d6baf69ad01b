package metering

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/musterhq/muster/internal/billing/budget"
	"github.com/musterhq/muster/internal/billing/fairness"
	"github.com/musterhq/muster/internal/billing/ledger"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/interval"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/notify"
)

// CreditSpan is how much of a failed lease's time before its loss is given back: what was computed since the last
// checkpoint is lost with it.
const CreditSpan = time.Hour

// Credit is what a renter got back for a lease whose host failed.
type Credit struct {
	Lease    id.Lease
	Rank     int
	Host     id.Host
	HostName string
	Reason   string    // 'host_lost', 'gpu_failed', …
	From, To time.Time // the billed time between them is free
	Amount   money.Nano
	HostPart money.Nano // of Amount, taken from the operator; the platform's fee is the rest
}

// CreditLoss gives the renter back what a lease cost in the hour before it was lost by its host's fault: its operator
// and the platform return their parts, and both sides are notified. What is charged later for that time, when a journal
// arrives late, is given back too, at the latest when the cluster is settled. The credit never exceeds the charge. A
// lease is lost once: calling it again changes nothing. The cluster's last window is closed; the caller holds its lock.
func CreditLoss(ctx context.Context, tx *db.Tx, cluster id.Cluster, lost id.Lease, reason string) error {
	w, err := lastWindow(ctx, tx.Q, cluster)
	if err != nil || w == nil {
		return err // never billed
	}
	from := lossMoment(w)
	if from == 0 {
		return nil
	}
	// What the lease proves to have run after that is part of it.
	now, err := tx.Now(ctx)
	if err != nil {
		return err
	}
	through := max(from, now.UnixMilli())
	leases, err := lockCluster(ctx, tx, cluster)
	if err != nil {
		return err
	}
	err = tx.Q.InsertServiceCredit(ctx, dbq.InsertServiceCreditParams{
		LeaseID: lost, ClusterID: cluster, Reason: reason, FromMs: from - CreditSpan.Milliseconds(), ThroughMs: through,
		Inducible: Inducible(reason),
	})
	if err != nil {
		return fmt.Errorf("insert credit for %s: %w", lost, err)
	}
	if err := charge(ctx, tx, unsettled(leases), inFull); err != nil {
		return err
	}
	if err := capCredit(ctx, tx, leases, lost, Inducible(reason)); err != nil {
		return err
	}
	return bookCredits(ctx, tx, cluster, leases)
}

// lossMoment returns when the billed time ended by a loss, unix ms: where the window is in doubt, the beginning of the
// doubt.
func lossMoment(w *dbq.ClusterWindow) int64 {
	switch {
	case w.ClosedMs != nil:
		return *w.ClosedMs
	case w.LimitMs != nil:
		return w.OpenedMs
	case w.DoubtFromMs != nil:
		return *w.DoubtFromMs
	}
	return 0
}

// Inducible reports whether a renter could have caused a failure of a host: by its load on line, network, runtime or
// GPU.
func Inducible(reason string) bool {
	switch reason {
	case "host_reclaimed", "host_interrupted", "gpu_in_use":
		return false
	}
	return true
}

// capCredit decides once how much of a lease's credit is booked without a person's decision: of a failure that the
// renter could have caused no more than fairness.Credit allows, of any other all of it. What the hour will have cost is
// not known yet, because proof may still arrive, so the cap counts from the most that it can have cost.
func capCredit(ctx context.Context, tx *db.Tx, leases []*lease, lost id.Lease, inducible bool) error {
	i := slices.IndexFunc(leases, func(l *lease) bool { return l.ID == lost })
	if i < 0 {
		return nil
	}
	l := leases[i]
	f, err := tx.Q.CreditFacts(ctx, l.RenterOrgID, lost, l.HostOrgID)
	if err != nil {
		return fmt.Errorf("read earlier credits of %s: %w", l.RenterOrgID, err)
	}
	hour := hourOf(l)
	book, hold := fairness.Credit(fairness.Loss{
		Ended:     fairness.Suspension{Class: fairness.Proof, Culprits: []int{0}}, // as the caller found: this lease alone
		Inducible: inducible, LastHour: hour, Posted: hour,
		Charged30d: money.Nano(f.Charged), Credited30d: money.Nano(f.Credited), PairCredited: f.PairCredited,
	})
	state := creditBooked
	if hold > 0 {
		state = creditHeld
	}
	if err := tx.Q.CapServiceCredit(ctx, state, int64(book), lost); err != nil {
		return fmt.Errorf("cap the credit of %s: %w", lost, err)
	}
	return nil
}

// States of a service credit. Of one that is held, the part up to its cap is booked and the rest waits for a person; of
// one that is refused, what was booked stays.
const (
	creditBooked  = "booked"
	creditHeld    = "held"
	creditRefused = "refused"
)

// hourOf returns the most that an hour of a lease has cost.
func hourOf(l *lease) money.Nano {
	var rate money.Micro
	for _, p := range l.terms.Prices {
		rate = max(rate, p.Rate)
	}
	return money.CostOf(rate, CreditSpan.Milliseconds())
}

// bookCredits books what the cluster's credits have come to beyond what is booked already. Its meters are locked. All
// accounts are locked before the first entry: one credit after the other would lock a pending account after the wallet,
// while a transaction that charges for usage of another cluster locks them in the opposite order.
func bookCredits(ctx context.Context, tx *db.Tx, cluster id.Cluster, leases []*lease) error {
	rows, err := tx.Q.ServiceCredits(ctx, cluster)
	if err != nil {
		return fmt.Errorf("read credits of %s: %w", cluster, err)
	}
	if len(rows) == 0 || len(leases) == 0 {
		return nil
	}
	if err := ledger.LockCorrections(ctx, tx, cluster.String()); err != nil {
		return err
	}
	var accounts []ledger.Account
	for _, l := range leases {
		accounts = append(accounts, ledger.HostPending(l.HostOrgID, l.Currency),
			ledger.Hold(l.RenterOrgID, cluster, l.Currency), ledger.Wallet(l.RenterOrgID, l.Currency))
	}
	if _, err := ledger.Lock(ctx, tx, accounts...); err != nil {
		return fmt.Errorf("credits of %s: %w", cluster, err)
	}
	for _, r := range rows {
		if r.State == creditRefused {
			continue
		}
		if err := bookCredit(ctx, tx, r); err != nil {
			return err
		}
	}
	return nil
}

// bookCredit books what one credit has come to beyond what is booked already.
func bookCredit(ctx context.Context, tx *db.Tx, r dbq.ServiceCreditsRow) error {
	leases, err := readLeases(ctx, tx.Q, []id.Lease{r.LeaseID})
	if err != nil || len(leases) != 1 {
		return err
	}
	l := leases[0]
	due, err := creditDue(ctx, tx.Q, l, r)
	if err != nil {
		return err
	}
	total, host, err := leftToCredit(ctx, tx.Q, l, r, due)
	if err != nil {
		return err
	}
	more, fromHost := total-money.Nano(r.Credited), host-money.Nano(r.HostPart)
	if more <= 0 {
		return nil
	}
	fee, err := ledger.FeeBack(ctx, tx.Q, r.ClusterID, more-fromHost)
	if err != nil {
		return err
	}
	if total, more = total-(more-fromHost-fee), fromHost+fee; more <= 0 {
		return nil
	}
	if err := postCredit(ctx, tx, l, r, total, fromHost, fee); err != nil {
		return err
	}
	if err := tx.Q.SetServiceCredit(ctx, l.ID, int64(total), int64(host)); err != nil {
		return fmt.Errorf("store credit of lease %s: %w", l.ID, err)
	}
	if err := budget.Refund(ctx, tx, l.RenterOrgID, l.ClusterID, l.Currency, more, time.UnixMilli(r.FromMs)); err != nil {
		return err
	}
	return notifyCredit(ctx, tx, l, r, total, host)
}

// creditDue returns what a credit has come to by the segments that are stored, as far as it needs no decision.
func creditDue(ctx context.Context, q *dbq.Queries, l *lease, r dbq.ServiceCreditsRow) (money.Nano, error) {
	segs, err := q.SegmentsWithin(ctx, r.LeaseID, r.FromMs, r.ThroughMs)
	if err != nil {
		return 0, fmt.Errorf("read segments of lease %s: %w", r.LeaseID, err)
	}
	due := creditOf(l, segs, Interval{Start: r.FromMs, End: r.ThroughMs})
	if r.State == creditHeld {
		atOnce := int64(0)
		if r.AtOnce != nil {
			atOnce = *r.AtOnce
		}
		due = min(due, money.Nano(atOnce))
	}
	return due, nil
}

// postCredit moves fromHost of the operator's earnings and fee of the platform's to the renter. total is what the
// credit comes to with it.
func postCredit(ctx context.Context, tx *db.Tx, l *lease, r dbq.ServiceCreditsRow, total, fromHost,
	fee money.Nano) error {
	wallet := ledger.Wallet(l.RenterOrgID, l.Currency)
	e := ledger.Entry{
		Kind: "service_credit",
		Key:  fmt.Sprintf("service_credit:%s:%d", l.ID, int64(total)),
		Ref:  r.ClusterID.String(),
		Memo: fmt.Sprintf("node %d, %s: %s", l.Rank, r.HostName, r.Reason),
	}
	var err error
	if e.Corrects, err = tx.Q.LedgerTxByKey(ctx, fmt.Sprintf("usage:%s:%d", l.ID, int64(l.meter.Posted))); err != nil {
		return fmt.Errorf("read the last charge of lease %s: %w", l.ID, err)
	}
	if fromHost > 0 {
		earned := ledger.HostPending(l.HostOrgID, l.Currency)
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: earned, Credit: wallet, Amount: fromHost})
	}
	if fee > 0 {
		e.Transfers = append(e.Transfers, ledger.Transfer{Debit: ledger.Fee(l.Currency), Credit: wallet, Amount: fee})
	}
	booked, err := ledger.Post(ctx, tx, e)
	if err != nil {
		return fmt.Errorf("credit %s for lease %s: %w", fromHost+fee, l.ID, err)
	}
	if !booked { // row and ledger move together or not at all
		return fmt.Errorf("%s is in the ledger but not on its row", e.Key)
	}
	return nil
}

// leftToCredit returns what a credit of total comes to, and the host's part of it, if charges for the lease have been
// given back in other ways too: no more than is left of the charges that were booked since the span began, nor than is
// left of all charges. The cluster's corrections are locked.
func leftToCredit(ctx context.Context, q *dbq.Queries, l *lease, r dbq.ServiceCreditsRow,
	total money.Nano) (all, host money.Nano, err error) {
	ref, name := r.ClusterID.String(), l.ID.String()
	span, err := ledger.ChargesLeft(ctx, q, ref, name, time.UnixMilli(r.FromMs), "service_credit")
	if err != nil {
		return 0, 0, err
	}
	left, err := ledger.ChargesLeft(ctx, q, ref, name, time.Time{}, "")
	if err != nil {
		return 0, 0, err
	}
	earned, fee := left[ledger.KindHostPending], left[ledger.KindPlatformFee]
	total = min(total, span[ledger.KindHostPending]+span[ledger.KindPlatformFee])
	more := min(total-money.Nano(r.Credited), earned+fee)
	if more <= 0 {
		return money.Nano(r.Credited), money.Nano(r.HostPart), nil
	}
	total = money.Nano(r.Credited) + more
	fromHost := money.Share(total, l.terms.SharePPM) - money.Nano(r.HostPart)
	fromHost = max(0, more-fee, min(fromHost, earned, more))
	return total, money.Nano(r.HostPart) + fromHost, nil
}

// creditOf returns what of the lease's charge falls into the span, at most what is posted of it.
func creditOf(l *lease, segs []dbq.SegmentsWithinRow, span Interval) money.Nano {
	due, _ := billable(l.windows, l.terms.Life)
	var proven []Interval
	for _, s := range segs {
		proven = append(proven, Interval{Start: s.StartMs, End: s.EndMs})
	}
	num := numerator(due.Intersect(SetOf(proven...)).Clip(span), l.terms.Prices)
	return min(money.Posted(num), l.meter.Posted)
}

// SignedWithin returns for which parts of some spans of time the host of a lease has signed that its rank was up, and
// for which of these the segments state it themselves: segments without facts only state that the lease existed.
// It skips spans without an end.
func SignedWithin(ctx context.Context, q *dbq.Queries, lease id.Lease,
	spans []interval.Span) (up, reported interval.Set, err error) {
	for _, s := range interval.Of(spans...) {
		rows, err := q.SegmentsWithin(ctx, lease, s.Start, s.End)
		if err != nil {
			return nil, nil, fmt.Errorf("read segments of %s: %w", lease, err)
		}
		var ups, withFacts []interval.Span
		for _, r := range rows {
			if r.Up {
				ups = append(ups, interval.Span{Start: r.StartMs, End: r.EndMs})
			}
			if r.Up && r.HasFacts {
				withFacts = append(withFacts, interval.Span{Start: r.StartMs, End: r.EndMs})
			}
		}
		up = up.Union(interval.Of(ups...).Clip(s))
		reported = reported.Union(interval.Of(withFacts...).Clip(s))
	}
	return up, reported, nil
}

// notifyCredit notifies both sides once for each amount. Charges that arrive late raise a credit that was notified
// already: then the notice states what is added, so that two notices are not read as two credits, and the total.
func notifyCredit(ctx context.Context, tx *db.Tx, l *lease, r dbq.ServiceCreditsRow, total, host money.Nano) error {
	why := fmt.Sprintf("Node %d of %s failed through no fault of the renter (%s): what it cost in the last hour before "+
		"the failure is credited.", l.Rank, l.ClusterID, r.Reason)
	more := ""
	late := func(money.Nano) string { return "" }
	if r.Credited > 0 {
		more = " more"
		late = func(inAll money.Nano) string {
			return fmt.Sprintf(" Late charges for that hour are credited too, which makes %s %s in total.",
				inAll.Plain(), l.Currency)
		}
	}
	now, fromHost := total-money.Nano(r.Credited), host-money.Nano(r.HostPart)
	notices := []notify.Notice{
		{
			Org:      l.RenterOrgID,
			Severity: notify.Info,
			Title:    fmt.Sprintf("%s %s%s credited: a host failed", now.Plain(), l.Currency, more),
			Body:     why + late(total) + " It is in your wallet.",
			Object:   l.ClusterID.String(),
		},
		{
			Org:      l.HostOrgID,
			Severity: notify.Warn,
			Title: fmt.Sprintf("%s %s%s of %s's earnings returned: it failed", fromHost.Plain(), l.Currency, more,
				r.HostName),
			Body:   why + late(host) + " The platform returns its fee.",
			Object: l.HostID.String(),
		},
	}
	for _, n := range notices {
		n.Key = fmt.Sprintf("service_credit:%s:%d", l.ID, int64(total))
		if _, err := notify.Add(ctx, tx, n); err != nil {
			return err
		}
	}
	return nil
}

// Credits lists the credits of a cluster, by lease.
func Credits(ctx context.Context, q *dbq.Queries, cluster id.Cluster) ([]Credit, error) {
	rows, err := q.ServiceCredits(ctx, cluster)
	if err != nil {
		return nil, fmt.Errorf("read credits of %s: %w", cluster, err)
	}
	out := make([]Credit, len(rows))
	for i, r := range rows {
		out[i] = Credit{
			Lease:    r.LeaseID,
			Rank:     int(r.Rank),
			Host:     r.HostID,
			HostName: r.HostName,
			Reason:   r.Reason,
			From:     time.UnixMilli(r.FromMs).UTC(),
			To:       time.UnixMilli(r.ThroughMs).UTC(),
			Amount:   money.Nano(r.Credited),
			HostPart: money.Nano(r.HostPart),
		}
	}
	return out, nil
}
