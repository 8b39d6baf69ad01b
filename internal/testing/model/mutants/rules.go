package main

const (
	chargeGo  = "internal/billing/metering/charge.go"
	segmentGo = "internal/billing/metering/segment.go"
	signedGo  = "internal/billing/metering/signed.go"
	ingestGo  = "internal/billing/metering/ingest.go"
	postingGo = "internal/billing/metering/posting.go"
	decideGo  = "internal/billing/fairness/decide.go"
	payGo     = "internal/billing/fairness/pay.go"
)

var mutants = []mutant{
	{
		name: "no-coverage", rule: "what was charged is not charged again", file: chargeGo,
		old: "	below := due.Intersect(proven).Clip(Interval{Start: m.SettledThrough, End: mark})\n	m.SettledThrough = mark\n",
		new: "	below := due.Intersect(SetOf(fresh...)).Clip(Interval{Start: 0, End: mark})\n	m.SettledThrough = mark\n",
	},
	{
		name: "floor-per-batch", rule: "posted is the floor of the sum, not a sum of floors", file: chargeGo,
		old: "	total := money.Posted(new(big.Int).Add(m.Numerator, numerator(live, t.Prices)))\n",
		new: "	total := m.Posted + money.Posted(numerator(below, t.Prices))\n	_ = live\n",
	},
	{
		name: "share-per-batch", rule: "the host's share is of the sum, not a sum of shares", file: chargeGo,
		old: "	host := money.Share(total, t.SharePPM)\n",
		new: "	host := m.HostPosted + money.Share(max(0, total-m.Posted), t.SharePPM)\n",
	},
	{
		name: "no-windows", rule: "only time within windows is billed", file: chargeGo,
		old: "		in[i] = w.Billable().And(life)\n",
		new: "		in[i] = Interval{Start: windows[0].OpenedMS, End: w.end()}.And(life)\n",
	},
	{
		name: "no-life", rule: "only time within the lease's life is billed", file: chargeGo,
		old: "		in[i] = w.Billable().And(life)\n",
		new: "		in[i] = w.Billable()\n",
	},
	{
		name: "gaps-are-final", rule: "a gap stays open until the lease is settled", file: chargeGo,
		old: "		mark = min(mark, missing[0].Start)\n",
		new: "		mark = min(mark, missing[len(missing)-1].Start)\n",
	},
	{
		name: "first-price", rule: "each moment costs the price of its time", file: chargeGo,
		old: "		i.End = prices[k+1].FromMS\n",
		new: "		i.End = prices[k+1].FromMS + 1\n",
	},
	{
		name: "half-open", rule: "an open window counts up to confirmed_until only", file: chargeGo,
		old: "	return w.ConfirmedMS\n",
		new: "	return w.ConfirmedMS + 300_000\n",
		by:  []suite{bills, {"./internal/billing/metering", "TestCharge_ExactInAnyOrder|TestCharge_NothingPastRunUntil"}},
	},
	{
		name: "short-pieces", rule: "no piece of time is too short to count", file: "internal/interval/interval.go",
		old: "both.Len() > 0 {\n",
		new: "both.Len() > 20_000 {\n",
	},
	{
		name: "no-lock", rule: "meters are locked before they are read", file: "internal/db/dbq/metering.sql.go",
		old: "ORDER BY m.lease_id\nFOR UPDATE OF m\n",
		new: "ORDER BY m.lease_id\n",
	},
	{
		name: "no-dedupe", rule: "a segment that is known is not taken in again", file: ingestGo,
		old: "		if r.known = bytes.Equal(before, r.hash[:]); !r.known {\n",
		new: "		if r.known = false; !bytes.Equal(before, r.hash[:]) {\n",
	},
	{
		name: "any-signature", rule: "only what the host signed counts", file: signedGo,
		old: "		if !valid && !signedByAny(signed[i], keys[rs[i].host][1:]) {\n",
		new: "		if !valid && len(keys) == 0 {\n",
	},
	{
		name: "any-list", rule: "a list counts as signed only by its host, as it is", file: signedGo,
		old: "		if !valid && !signedByAny(signed[k], keys[v.Host][1:]) {\n",
		new: "		if !valid && len(keys) == 0 {\n",
		by:  []suite{{"./internal/billing/metering", "TestSigned_ForgedList"}},
	},
	{
		name: "any-host", rule: "a host proves only its own leases", file: "internal/db/dbq/metering.sql.go",
		old: "JOIN lease l ON l.id = u.id AND l.host_id = u.host_id\n",
		new: "JOIN lease l ON l.id = u.id AND u.host_id IS NOT NULL\n",
		by:  []suite{{"./internal/billing/metering", "TestCollector_ManyHostsInOneTransaction|TestIngest_RefusedSegments"}},
	},
	{
		name: "any-clock", rule: "an end is what its anchor makes of the boot clock", file: segmentGo,
		old: "	case r.EndMS != max(anchor.At(r.BootEndMS), r.StartMS):\n",
		new: "	case r.EndMS < r.StartMS:\n",
		by:  []suite{{"./internal/billing/metering", "TestIngest_RefusedSegments"}},
	},
	{
		name: "any-future", rule: "nothing is proven before it happened", file: segmentGo,
		old: "	case r.EndMS > now+futureMS:\n",
		new: "	case r.EndMS > now+futureMS && now < 0:\n",
		by:  []suite{{"./internal/billing/metering", "TestIngest_RefusedSegments"}},
	},
	{
		name: "last-content-wins", rule: "of two contents under one number the first stands", file: ingestGo,
		old: "			r.refused = refusedConflict\n",
		new: "			r.known = true\n",
		by:  []suite{{"./internal/billing/metering", "TestIngest_ConflictFreezesLease"}},
	},
	{
		name: "hold-rounds-down",
		rule: "what is held covers every charge it may meet",
		file: "internal/billing/metering/authorise.go",
		old:  "		total += money.Posted(num.Add(num, big.NewInt(money.NumeratorPerNano-1)))\n",
		new:  "		total += money.Posted(num) - money.Posted(num)/1000\n",
		by:   []suite{bills, {"./internal/billing/metering", "TestAuthorise_NoOvershoot|TestWalk_RandomHourStaysWithinHold"}},
	},
	{
		name: "gives-all-back", rule: "a hold keeps what may still be charged", file: "internal/billing/metering/settle.go",
		old: "	spare := books.Balance(hold) - need(leases, from, until)\n",
		new: "	spare := books.Balance(hold)\n	_, _ = from, until\n",
	},
	{
		name: "meter-alone", rule: "meter and books move together", file: postingGo,
		old: "		if p.Renter > 0 {\n			entries",
		new: "		if p.Renter > 0 && p.Renter%7 != 0 {\n			entries",
	},
	{
		name: "never-due", rule: "a step of proven time is booked", file: postingGo,
		old: "	if p.BilledMS >= postStep(l.meter.PostedBilledMS) || l.ended() ||",
		new: "	if l.ended() ||",
		by:  []suite{bills, {"./internal/billing/metering", "TestPosting_RunningLeaseInSteps"}},
	},
	{
		name: "waits-for-ever", rule: "nothing that is proven waits longer than 65 minutes", file: postingGo,
		old: "l.readAt-l.unpostedSince >= postWithinMS",
		new: "p.BilledMS > 0 && l.readAt < l.unpostedSince",
		by:  []suite{{"./internal/billing/metering", "TestPosting_NothingWaitsForLong"}},
	},
	{
		name: "waits-when-closed", rule: "when no window is open, nothing waits to be posted", file: postingGo,
		old: "			return false\n		}\n	}\n	return true\n",
		new: "			return false\n		}\n	}\n	return false\n",
		by:  []suite{bills, {"./internal/billing/metering", "TestPosting_NothingWaitsAtClose"}},
	},
	{
		name: "forgets-what-waits",
		rule: "what is not booked yet is part of the next posting",
		file: postingGo,
		old: "	after.Posted, after.HostPosted, after.PostedBilledMS = l.meter.Posted, l.meter.HostPosted, " +
			"l.meter.PostedBilledMS\n",
		new: "",
	},
	{
		name: "unlocked-balances", rule: "balances are locked before they are read", file: "internal/db/dbq/ledger.sql.go",
		old: ", b.account_id\nFOR UPDATE OF b\n",
		new: ", b.account_id\n",
		by:  []suite{{"./internal/billing/ledger", "TestPost_WalletNeverBelowZero|TestLedger_AlwaysBalances"}},
	},
	{
		name: "auto-keys", rule: "a charge said again carries the key it carried before", file: "internal/stripe/payment.go",
		old: "	params.SetIdempotencyKey(key)\n	pi, err := c.api.PaymentIntents.New(params)\n",
		new: "	_ = key\n	pi, err := c.api.PaymentIntents.New(params)\n",
		by:  []suite{{"./internal/billing/payment", "TestOutbox_EveryFaultChargesOnce|TestOutbox_ManySendersRandomFaults"}},
	},
	{
		name: "counted-twice", rule: "what waits for two reasons waits once", file: "internal/billing/claim/disputed.go",
		old: "			extra = max(extra, claimed-waits)\n",
		new: "			extra = claimed\n			_ = waits\n",
		by:  []suite{{"./internal/billing/claim", "TestHeld_TwoReasonsCountOnce"}},
	},
	{
		name: "payout-key",
		rule: "a transfer said again carries the key it carried before",
		file: "internal/stripe/transfer.go",
		old:  "	params.SetIdempotencyKey(key)\n	t, err := c.api.Transfers.New(params)\n",
		new:  "	_ = key\n	t, err := c.api.Transfers.New(params)\n",
		by:   []suite{{"./internal/billing/payout", "TestPayout_KilledWorkerPaysOnce|TestPayout_EachNanoUnitOnce"}},
	},
	{
		name: "blocked-card",
		rule: "the card of a lost dispute pays for no org any more",
		file: "internal/billing/payment/settle.go",
		old:  "	if pay.Fingerprint != \"\" {\n		if blocked",
		new:  "	if false {\n		if blocked",
		by:   []suite{{"./internal/billing/payment", "TestDispute_LostBlocksCard"}},
	},
	{
		name: "lost-dispute-paid",
		rule: "what was earned from a payment that was taken back waits for a person",
		file: "internal/billing/payout/review.go",
		old: "	if err := openLost(ctx, tx, org, currency, matured, unpaid); err != nil {\n" +
			"		return 0, err\n	}\n",
		new: "	_ = openLost\n",
		by:  []suite{{"./internal/billing/payout", "TestReview_LostDispute"}},
	},
	{
		name: "restored-not-paused",
		rule: "a restored database sends no money before a person has read the report",
		file: "internal/restore/adopt.go",
		old:  "	if err := outbox.PauseByPlatform(ctx, tx,",
		new:  "	if err := func(context.Context, *db.Tx, string) error { _ = outbox.PauseByPlatform; return nil }(ctx, tx,",
		by:   []suite{{"./internal/restore", "TestARestoredDatabaseIsAdopted"}},
	},
	{
		name: "adoption-begun-forgotten",
		rule: "an adoption that died goes on where it stopped",
		file: "internal/restore/adopt.go",
		old:  "		case had && last.FinishedAt == nil && !o.NothingLost:\n",
		new:  "		case false:\n",
		by:   []suite{{"./internal/restore", "TestAnAdoptionDiesAnywhere"}},
	},
	{
		name: "finding-apart",
		rule: "what an adoption books and its finding are one transaction",
		file: "internal/restore/adopt.go",
		old: "record := func(ctx context.Context, tx *db.Tx, a payment.Adopted) error " +
			"{ return put(ctx, tx.Q, a) }",
		new: "record := func(context.Context, *db.Tx, payment.Adopted) error { return nil }",
		by:  []suite{{"./internal/restore", "TestAnAdoptionDiesAnywhere"}},
	},
}
