package main

// quotas is the proof of the quota of GPU-seconds that no one pays for.
var quotas = suite{"./internal/fleet/cluster", "TestQuota_IsTheOracles"}

const (
	circleSQL = "migrations/00660_circle.sql"
	startsSQL = "internal/db/dbq/cluster_start.sql.go"
)

// quotaMutants break the rule of what may be held and taken without paying.
var quotaMutants = []mutant{
	{
		name: "quota-per-org", rule: "organisations of one person have one quota", file: circleSQL,
		by:  []suite{quotas, {"./internal/account", "TestCircle"}},
		old: "        JOIN circle_link b ON b.via = a.via AND (",
		new: "        JOIN circle_link b ON b.via = a.via AND b.org_id = a.org_id AND (",
	},
	{
		name: "links-end-at-once", rule: "a link counts until what was held under it no longer counts", file: circleSQL,
		by:  []suite{{"./internal/account", "TestCircle"}},
		old: "(b.ended_at IS NULL OR b.ended_at > since)",
		new: "b.ended_at IS NULL",
	},
	{
		name: "cards-unlinked", rule: "organisations with one card have one quota", file: circleSQL,
		by:  append(starts("TestStartQuota_OneForACircle"), suite{"./internal/account", "TestCircle"}),
		old: "SELECT NEW.org_id, 'card:' || NEW.fingerprint WHERE",
		new: "SELECT NEW.org_id, 'card:' || NEW.fingerprint || NEW.org_id WHERE",
	},
	{
		name: "others-spend-it", rule: "what an organisation has paid for covers its own starts", file: startquotaGo,
		by:  []suite{limits, {"./internal/fleet/cluster", "TestStartQuota_OneForACircle"}},
		old: "	if !v.Covered && r.Judge(own, rate, nowMS).Covered {\n",
		new: "	if !v.Covered && r.Judge(own, rate, nowMS).Covered && r.Window == 0 {\n",
	},
	{
		name: "half-of-a-model", rule: "starts that no payment covers hold at most half of a model", file: startquotaGo,
		by:  []suite{limits, {"./internal/fleet/cluster", "TestStartQuota_Quotes"}},
		old: "		most = min(most, (total+1)/2)\n",
		new: "		most = min(most, total)\n",
	},
	{
		name: "quotes-are-free", rule: "quotes count as starts do", file: startsSQL,
		by:  []suite{{"./internal/fleet/market", "TestQuotesOfOnePersonLeaveTheMarket"}},
		old: "sum(q.gpus * q.ms)::bigint AS gpu_ms",
		new: "sum(q.gpus * q.ms * 0)::bigint AS gpu_ms",
	},
	{
		name: "quotes-beside-starts", rule: "quotes that no payment covers hold a part of the market", file: startsSQL,
		by:  starts("TestStartQuota_Quotes"),
		old: "WHERE q.state = 'held' AND q.unpaid AND",
		new: "WHERE q.state = 'none' AND q.unpaid AND",
	},
	{
		name: "one-credit-for-all", rule: "credit for 60 s is needed for all open quotes together",
		file: "internal/fleet/market/quote.go", by: []suite{{"./internal/fleet/market", "TestQuotesNeedCreditTogether"}},
		old: "		need += money.CostCeil(rate, minFundsMS)\n",
		new: "		need = max(need, money.CostCeil(rate, minFundsMS))\n",
	},
	{
		name: "returned-is-paid", rule: "what hosts gave back was not paid", file: startsSQL,
		by:  starts("TestStartQuota_ReturnedIsNotPaid"),
		old: "SELECT e.earned - e.returned AS net",
		new: "SELECT e.earned AS net",
	},
	{
		name: "credited-is-paid", rule: "what was credited was not charged", file: "internal/db/dbq/metering_credit.sql.go",
		by:  starts("TestStartQuota_ReturnedIsNotPaid"),
		old: "SELECT sum(m.posted - coalesce(c.credited, 0))",
		new: "SELECT sum(m.posted)",
	},
	{
		name: "upload-keeps-disk", rule: "the disk that an upload keeps counts",
		file: "internal/fleet/cluster/uploads.go", by: starts("TestUpload_DiskCounts"),
		old: "		from, thousandths = *n.gpusFree, n.flushGPUs\n",
		new: "		return\n",
	},
	{
		name: "upload-keeps-disk-now", rule: "the disk counts while the upload keeps it", file: startsSQL,
		by:  starts("TestUpload_DiskCounts"),
		old: "THEN 1000 * l.gpu_count ELSE l.flush_gpu_thousandths END",
		new: "THEN 1000 * l.gpu_count ELSE 0 END",
	},
	{
		name: "small-packs-are-free", rule: "packs are limited by number, too", file: "internal/data/volume/quota.go",
		by:  []suite{{"./internal/data/volume", "TestQuota_CountsPacks"}},
		old: "	leastPack = 256 << 10\n",
		new: "	leastPack = 1\n",
	},
	{
		name: "code-for-each-org", rule: "a promo code is used once in a circle",
		file: "internal/billing/payment/promo.go",
		by:   []suite{{"./internal/billing/payment", "TestPromo_OncePerPersonAndCard"}},
		old:  "		if used {\n",
		new:  "		if used && c.Amount == 0 {\n",
	},
	{
		name: "hosts-vote", rule: "hosts of one operator excuse no loss", file: "internal/fleet/host/silence.go",
		by:  append(starts("TestMassSilence"), suite{"./internal/fleet/host", "TestMassSilence"}),
		old: "most*massPart <= silent",
		new: "most <= silent",
	},
	{
		name: "gap-again", rule: "a gap of silent hosts is not extended", file: "internal/fleet/host/silence.go",
		by:  starts("TestMassSilence"),
		old: "	if again {\n",
		new: "	if again && s.hosts == 0 {\n",
	},
}
