package main

// gangs is the proof of the rule of who is paid in a gang.
var gangs = suite{"./internal/testing/model", "TestEveryGangIsTheOracles"}

// limits are the tests of the small rules of internal/billing/fairness.
var limits = suite{"./internal/billing/fairness", "Test"}

// booked is the proof that the ledger follows the rule.
var booked = suite{"./internal/testing/model", "TestGangsAreBookedAsTheOracleSays"}

// deafGangs are gangs on a real database whose ranks did not receive from each other.
var deafGangs = suite{"./internal/fleet/cluster", "Deaf|OneVoice|SilencesAreKnown"}

// starts returns the suite of one test of unpaid starts, or of what follows a machine that is enrolled
// again.
func starts(test string) []suite { return []suite{{"./internal/fleet/cluster", test}} }

const startquotaGo = "internal/billing/fairness/startquota.go"

const standbyGo = "internal/billing/bond/standby.go"

// gangMutants break the rule of internal/billing/fairness.
var gangMutants = []mutant{
	{
		name: "blame-by-voice",
		rule: "a pair that is down is no evidence against either end",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "			blame[k] = blame[k].Union(down.Intersect(silent[k].Union(f.Ranks[k].RelaySilent)))\n",
		new:  "			blame[k] = blame[k].Union(down)\n",
	},
	{
		name: "blame-when-deaf",
		rule: "no rank is to blame while the platform is deaf",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "		case deaf > 0:\n",
		new:  "		case deaf > 0 && len(missing) == 0:\n",
	},
	{
		name: "silent-when-deaf",
		rule: "a host is not silent while the platform is deaf",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "		silent[k] = f.Ranks[k].Silent.Clip(f.Run).Minus(gaps)\n",
		new:  "		silent[k] = f.Ranks[k].Silent.Clip(f.Run)\n",
	},
	{
		name: "vouched-though-unwell",
		rule: "no rank vouches for one that its own host reported as not up",
		file: decideGo,
		by:   []suite{gangs},
		old:  "		vouched := before.Intersect(after[k+1]).Minus(f.Ranks[k].Unwell)\n",
		new:  "		vouched := before.Intersect(after[k+1])\n",
	},
	{
		name: "over-the-bond", rule: "no host pays more than its bond", file: payGo, by: []suite{gangs, limits},
		old: "		p.bonds[culprit] -= settle(claims, ms, p.bonds[culprit])\n",
		new: "		p.bonds[culprit] -= settle(claims, ms, 1<<60)\n",
	},
	{
		name: "one-sided-down",
		rule: "the word of one side does not suspend a pair",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "	one := ij.Intersect(silent[j].Union(absent[j])).Union(ji.Intersect(silent[i].Union(absent[i])))\n",
		new:  "	one := ij.Union(ji)\n",
	},
	{
		name: "unproven-billed",
		rule: "nothing is billed while a rank is not proven up",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "		suspended = append(suspended, absent[k]...)\n",
		new:  "",
	},
	{
		name: "relief-uncapped",
		rule: "relief is at most a part of the cluster's own fee",
		file: payGo,
		by:   []suite{gangs, limits},
		old:  "	accounts, left := p.undecided, min(p.forUndecided, p.forAll)\n",
		new:  "	accounts, left := p.undecided, p.forAll+1<<40\n",
	},
	{
		name: "relief-half-capped",
		rule: "undecided time gets at most half of the fee",
		file: payGo,
		by:   []suite{gangs, limits},
		old:  "	accounts, left := p.undecided, min(p.forUndecided, p.forAll)\n",
		new:  "	accounts, left := p.undecided, p.forAll\n",
	},
	{
		name: "not-cumulative", rule: "standby is the floor of the sum, not a sum of floors", file: payGo, by: []suite{gangs},
		old: "				x := min(c.due(c.ms+ms)-c.paid, left-paid)\n",
		new: "				x := min(c.due(c.ms+ms)-c.due(c.ms), left-paid)\n",
	},
	{
		name: "first-culprit-pays", rule: "several culprits take turns", file: payGo, by: []suite{gangs},
		old: "		ms := turns(piece, int64(turn), int64(len(s.Culprits)))\n",
		new: "		ms := turns(piece, 0, 1) * int64(1-min(turn, 1))\n",
	},
	{
		name: "pays-itself", rule: "an operator owes itself nothing", file: payGo, by: []suite{gangs},
		old: "			if p.leases[v].Operator == p.leases[culprit].Operator {\n",
		new: "			if v == culprit {\n",
	},
	{
		name: "culprit-is-paid", rule: "who is to blame is not paid for the time", file: payGo, by: []suite{gangs},
		old: "		if slices.Contains(s.Culprits, v) {\n",
		new: "		if len(s.Culprits) == 1 && s.Culprits[0] == v {\n",
	},
	{
		name: "one-voucher",
		rule: "all other ranks must vouch for a rank that was silent",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "		vouched := before.Intersect(after[k+1]).Minus(f.Ranks[k].Unwell)\n",
		new:  "		vouched := after[k+1].Minus(f.Ranks[k].Unwell)\n",
	},
	{
		name: "deaf-voucher",
		rule: "who was deaf to a rank does not vouch for it",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "				vouched = vouched.Minus(deaf)\n",
		new:  "				vouched = vouched.Minus(nil)\n",
	},
	{
		name: "relay-unheard",
		rule: "packets that the relay carried clear a claim of one side",
		file: decideGo,
		by:   []suite{gangs, limits},
		old:  "		one = one.Minus(carried)\n",
		new:  "		one = one.Minus(nil)\n",
	},
	{
		name: "posts-too-early",
		rule: "nothing is posted that a later report could take back",
		file: "internal/billing/fairness/watermark.go",
		old:  "			at = min(at, r.ReportedMS-(PeerSilence+ClockSlack).Milliseconds())\n",
		new:  "			at = min(at, r.ReportedMS)\n",
		by:   []suite{{"./internal/testing/model", "TestWhatIsPostedStands"}, limits},
	},
	{
		name: "never-late",
		rule: "a host that reports a silence too late was silent itself",
		file: "internal/billing/fairness/late.go",
		by:   []suite{limits, deafGangs},
		old:  " && r.ReceivedMS > r.Start+(PeerSilence+Late).Milliseconds() {\n",
		new:  " && false {\n",
	},
	{
		name: "late-rest",
		rule: "only the beginning of a silence can be late",
		file: "internal/billing/fairness/late.go",
		by:   []suite{limits},
		old:  "		if r.Start > end+joined && ",
		new:  "		if ",
	},
	{
		name: "deaf-unasked",
		rule: "time is confirmed only after what hosts signed about each other was looked at",
		file: "internal/fleet/cluster/window.go",
		by:   []suite{deafGangs},
		old:  "	return span, b.deafAfter && ",
		new:  "	return span, false && ",
	},
	{
		name: "deaf-unawaited",
		rule: "time is decided only when it is known from whom each rank did not receive",
		file: "internal/fleet/cluster/judge.go",
		by:   []suite{deafGangs},
		old:  "		if len(rows) > 1 && !c.deafnessKnown(r, part.End, now) {\n",
		new:  "		if false {\n",
	},
	{
		name: "confirmed-too-early",
		rule: "what is confirmed stays behind by as long as a silence goes unnoticed",
		file: "internal/fleet/cluster/window.go",
		by:   []suite{deafGangs},
		old:  "		t = earliest(t, time.UnixMilli(fairness.Posted(signing)))\n",
		new:  "",
	},
	{
		name: "bond-of-one",
		rule: "a bond covers all ranks of other operators",
		file: "internal/billing/fairness/bond.go",
		by:   []suite{limits},
		old:  "			rates += l.StandbyRate\n",
		new:  "			rates = max(rates, l.StandbyRate)\n",
	},
	{
		name: "any-price",
		rule: "no operator raises what its neighbours are liable for",
		file: "internal/billing/fairness/bond.go",
		by:   []suite{limits},
		old:  "		rate = min(rate, o.twice(own.GPUs))\n",
		new:  "		rate = max(rate, min(rate, o.twice(own.GPUs)))\n",
	},
	{
		name: "late-start-free",
		rule: "who starts late pays those who waited",
		file: "internal/billing/fairness/start.go",
		by:   []suite{limits},
		old:  "	if b.FromMS = first; len(b.Late) == 0 {\n",
		new:  "	if b.FromMS = first; len(b.Late) >= 0 {\n",
	},
	{
		name: "credit-uncapped",
		rule: "credits that a renter can cause are capped",
		file: "internal/billing/fairness/credit.go",
		by:   []suite{limits},
		old:  "		book = max(0, min(amount, left))\n",
		new:  "		book, _ = amount, left\n",
	},
	{
		name: "same-opponent",
		rule: "one operator alone cannot have a host banned",
		file: "internal/billing/fairness/strikes.go",
		by:   []suite{limits},
		old:  "			opponents[s.Against] = true\n",
		new:  "			opponents[id.New[id.Org]()] = true\n",
	},
	{
		name: "second-doubt",
		rule: "a host may be in doubt twice within an hour",
		file: "internal/billing/fairness/strikes.go",
		old:  "	return n >= Doubts\n",
		new:  "	return n >= Doubts-1\n",
		by:   []suite{limits, {"./internal/testing/model", "TestHonestGangsRunOn"}},
	},
	{
		name: "no-third-doubt",
		rule: "a host's third doubt within an hour is final at once",
		file: "internal/billing/fairness/strikes.go",
		old:  "	return n >= Doubts\n",
		new:  "	return n > 1000\n",
		by:   []suite{limits},
	},
	{
		name: "net-standby",
		rule: "standby is paid at the full rate, fee included",
		file: payGo,
		old: "			claims = append(claims, claim{a, func(ms int64) money.Nano { return " +
			"money.CostOf(p.leases[v].StandbyRate, ms) }})\n",
		new: "			claims = append(claims, claim{a, func(ms int64) money.Nano { return p.hostPart(v, ms) }})\n",
		by:  []suite{gangs, {"./internal/testing/model", "TestAttacksDoNotPay"}},
	},
	{
		name: "fee-twice",
		rule: "a fee that became relief is not given back as well",
		file: "internal/billing/fairness/credit.go",
		by:   []suite{limits, {"./internal/testing/model", "TestReliefIsNotCreditedToo"}},
		old:  "max(0, min(part, usageFee-relief))",
		new:  "max(0, min(part, usageFee))",
	},
	{
		name: "standby-again", rule: "standby that was paid is not paid again", file: standbyGo, by: []suite{booked},
		old: "	more, toHost := paid-x.posted, host-x.host\n",
		new: "	more, toHost := paid, host\n",
	},
	{
		name: "standby-share-per-posting",
		rule: "the victim's share of standby is of the sum, not a sum of shares",
		file: standbyGo,
		by:   []suite{booked},
		old:  "	host := money.Share(paid, v.SharePPM)\n",
		new:  "	host := x.host + money.Share(paid-x.posted, v.SharePPM)\n",
	},
	{
		name: "relief-again", rule: "relief that was paid is not paid again", file: standbyGo, by: []suite{booked},
		old: "Amount: x.total - x.posted,",
		new: "Amount: x.total,",
	},
	{
		name: "relief-and-fee", rule: "credits return no fee that became relief", file: "internal/billing/ledger/correct.go",
		old: "	return fairness.FeeBack(part, money.Nano(fee), relief), nil\n",
		new: "	return max(part, fairness.FeeBack(part, money.Nano(fee), relief)), nil\n",
		by:  []suite{{"./internal/billing/metering", "TestCredit_FeePaidAsReliefStays"}},
	},
	{
		name: "starts-that-run-are-free",
		rule: "the time from the claim to the run counts",
		file: "internal/fleet/cluster/transition.go",
		by:   starts("TestStartsHoldGPUsForABoundedTime"),
		old:  "	lf.startEnds(at, lifecycle.ReasonNone)\n",
		new:  "	lf.row.StartFrom = nil\n",
	},
	{
		name: "failed-starts-are-free",
		rule: "a start counts however it fails",
		file: "internal/fleet/cluster/transition.go",
		by:   starts("TestStartsHoldGPUsForABoundedTime"),
		old:  "	lf.startEnds(lf.now, r)\n",
		new:  "	lf.row.StartFrom = nil\n",
	},
	{
		name: "starts-again-are-free",
		rule: "a start after a failed command counts",
		file: "internal/fleet/cluster/transition.go",
		by:   starts("TestStartsAgainCountInTheQuota"),
		old:  "	lf.row.StartFrom = &lf.now\n",
		new:  "	lf.row.StartFrom = nil\n",
	},
	{
		name: "starts-unlimited", rule: "starts are limited by what was paid", file: startquotaGo, by: []suite{limits},
		old: "	v.OK = v.Covered || within(v.GPUMillis, v.Value)\n",
		new: "	v.OK = v.Covered || v.OK\n",
	},
	{
		name: "slow-hosts-count", rule: "a slow host costs the renter no quota", file: startquotaGo,
		by:  append(starts("TestSlowHostsDoNotCount"), limits),
		old: "	if imageBytes > 0 {\n",
		new: "	if imageBytes > 1<<60 {\n",
	},
	{
		name: "always-excused",
		rule: "an operator's failures excuse a renter once a day",
		file: "internal/fleet/cluster/starts.go",
		by:   starts("TestStartsThatHostsFail"),
		old:  "			Since: e.row.EndedAt.Add(-fairness.StartExcuse),\n",
		new:  "			Since: e.row.EndedAt,\n",
	},
	{
		name: "whole-market",
		rule: "starts that no payment covers hold a part of the market",
		file: startquotaGo,
		by:   append(starts("TestNewOrganisationsHoldAPartOfTheMarket"), limits),
		old:  "	return max(0, most-held)\n",
		new:  "	return max(0, most)\n",
	},
	{
		name: "pair-in-order",
		rule: "the ban of a pair does not depend on which of both is older",
		file: "internal/fleet/market/snapshot_read.go",
		by:   starts("TestAPairBanFollowsAHostThatIsEnrolledAgain"),
		old:  "		g.Bans[newBan(b.A.Bytes, b.B.Bytes)] = true\n",
		new:  "		g.Bans[Ban{b.A.Bytes, b.B.Bytes}] = true\n",
	},
	{
		name: "no-heirs",
		rule: "what counts against a machine follows it when it is enrolled again",
		file: "migrations/00272_host_heir.sql",
		by:   starts("TestAGangBanFollowsAHostThatIsEnrolledAgain"),
		old:  "o.host_id, n.host_id, true, n.created_at\n",
		new:  "o.host_id, n.host_id, true, '-infinity'\n",
	},
	{
		name: "heirs-of-who-bought-it",
		rule: "strikes do not follow a machine that was sold",
		file: "migrations/00272_host_heir.sql",
		by:   starts("TestAGangBanFollowsAHostThatIsEnrolledAgain"),
		old:  "o.host_id, n.host_id, nh.org_id = oh.org_id, 'infinity'\n",
		new:  "o.host_id, n.host_id, true, 'infinity'\n",
	},
}
