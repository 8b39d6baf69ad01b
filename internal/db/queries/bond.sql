-- The bonds of operators' hosts in gangs, and what is paid from them.

-- name: BondTerms :one
SELECT retain_ppm, accept_unbonded, liability_max FROM bond_terms WHERE org_id = $1;

-- name: SetBondTerms :exec
INSERT INTO bond_terms (org_id, retain_ppm, accept_unbonded, liability_max, changed_by)
VALUES (@org_id, @retain_ppm, @accept_unbonded, sqlc.narg(liability_max), @changed_by)
ON CONFLICT (org_id) DO UPDATE SET retain_ppm = excluded.retain_ppm, accept_unbonded = excluded.accept_unbonded,
    liability_max = excluded.liability_max, changed_by = excluded.changed_by, changed_at = clock_timestamp();

-- name: SetHostLiability :execrows
INSERT INTO bond_host_terms (host_id, liability_max)
SELECT h.id, @liability_max::bigint FROM host h WHERE h.id = @host_id AND h.org_id = @org_id AND h.state <> 'retired'
ON CONFLICT (host_id) DO UPDATE SET liability_max = excluded.liability_max, changed_at = clock_timestamp();

-- name: ClearHostLiability :one
-- False: the org has no such host. A host without a limit of its own stays as it is.
WITH cleared AS (DELETE FROM bond_host_terms t USING host h WHERE h.id = t.host_id AND t.host_id = @host_id AND h.org_id = @org_id AND h.state <> 'retired')
SELECT EXISTS (SELECT FROM host h WHERE h.id = @host_id AND h.org_id = @org_id AND h.state <> 'retired') AS known;

-- name: HostLiabilities :many
SELECT t.host_id, t.liability_max FROM bond_host_terms t JOIN host h ON h.id = t.host_id WHERE h.org_id = $1 ORDER BY t.host_id;

-- name: BondPaidIn :one
-- What is left of an org's payments: neither refunded nor disputed.
SELECT coalesce(sum(greatest(0, t.amount - coalesce(r.amount, 0))), 0)::bigint AS amount
FROM topup t
LEFT JOIN LATERAL (SELECT sum(f.amount) AS amount FROM refund f WHERE f.topup_id = t.id AND f.state <> 'failed') r ON true
WHERE t.org_id = @org_id AND t.state = 'succeeded' AND t.currency = @currency AND t.payment_intent_id IS NOT NULL
  AND NOT EXISTS (SELECT FROM dispute d WHERE d.topup_id = t.id);

-- name: BondListedModels :many
-- The GPU models that an operator offers now: how many GPUs, what one costs an hour on average, and the least that one costs at another
-- operator, 0 where no other offers the model. Micro-units.
SELECT m.gpu_model, m.gpus::bigint AS gpus, m.price::bigint AS price,
       coalesce((SELECT min(x.price) FROM offer x JOIN host y ON y.id = x.host_id
                 WHERE x.gpu_model = m.gpu_model AND y.org_id <> @org_id AND y.state = 'active' AND x.price IS NOT NULL), 0)::bigint AS elsewhere
FROM (SELECT o.gpu_model, sum(g.n) AS gpus, sum(o.price * g.n) / sum(g.n) AS price
      FROM offer o JOIN host h ON h.id = o.host_id
      CROSS JOIN LATERAL (SELECT count(*) AS n FROM gpu u WHERE u.host_id = o.host_id AND u.model = o.gpu_model AND u.present AND u.removed_at IS NULL) g
      WHERE h.org_id = @org_id AND h.state = 'active' AND o.price IS NOT NULL AND g.n > 0
      GROUP BY o.gpu_model) m
ORDER BY m.gpu_model;

-- name: InsertLeaseBond :exec
INSERT INTO lease_bond (lease_id, cluster_id, host_id, org_id, currency, srate, amount, reserved)
VALUES (@lease_id, @cluster_id, @host_id, @org_id, @currency, @srate, @amount, @reserved);

-- name: LeaseBonds :many
-- Of a cluster. The caller holds the cluster's lock to write.
SELECT b.lease_id, b.cluster_id, b.host_id, b.org_id, b.currency, b.srate, b.amount, b.reserved, b.released, b.short_told, b.created_at, b.released_at,
       l.rank, l.ended_at, l.settled_at, l.host_share_ppm, h.name AS host_name
FROM lease_bond b JOIN lease l ON l.id = b.lease_id JOIN host h ON h.id = b.host_id
WHERE b.cluster_id = $1 ORDER BY b.lease_id;

-- name: LeaseBondsOfOrg :many
-- What an operator has reserved now, by lease, newest first.
SELECT b.lease_id, b.cluster_id, b.host_id, b.currency, b.srate, b.amount, b.created_at, l.rank, l.ended_at, h.name AS host_name,
       coalesce((SELECT x.amount FROM ledger_account a JOIN ledger_balance x ON x.account_id = a.id
                 WHERE a.kind = 'bond_hold' AND a.owner = b.lease_id AND a.currency = b.currency), 0)::bigint AS held
FROM lease_bond b JOIN lease l ON l.id = b.lease_id JOIN host h ON h.id = b.host_id
WHERE b.org_id = @org_id AND b.currency = @currency AND b.released_at IS NULL AND b.amount > 0
ORDER BY b.lease_id DESC LIMIT @max_rows;

-- name: SetLeaseBondReserved :exec
UPDATE lease_bond SET amount = @amount, reserved = @reserved, short_told = @short_told WHERE lease_id = @lease_id;

-- name: ReleaseLeaseBond :exec
UPDATE lease_bond SET released = @released, released_at = clock_timestamp() WHERE lease_id = @lease_id;

-- name: StandbyOfCluster :many
SELECT victim, culprit, cluster_id, ms, numerator, posted, host_posted, posted_at FROM standby WHERE cluster_id = $1 ORDER BY victim, culprit;

-- name: SetStandby :exec
INSERT INTO standby (victim, culprit, cluster_id, ms, numerator, posted, host_posted)
VALUES (@victim, @culprit, @cluster_id, @ms, @numerator, @posted, @host_posted)
ON CONFLICT (victim, culprit) DO UPDATE SET ms = excluded.ms, numerator = excluded.numerator, posted = excluded.posted,
    host_posted = excluded.host_posted, posted_at = clock_timestamp();

-- name: ReliefOfCluster :many
SELECT victim, cluster_id, ms, host_posted, posted_at FROM standby_relief WHERE cluster_id = $1 ORDER BY victim;

-- name: SetRelief :exec
INSERT INTO standby_relief (victim, cluster_id, ms, host_posted) VALUES (@victim, @cluster_id, @ms, @host_posted)
ON CONFLICT (victim) DO UPDATE SET ms = excluded.ms, host_posted = excluded.host_posted, posted_at = clock_timestamp();

-- name: BondDeposited :one
SELECT amount FROM bond_deposited WHERE org_id = $1 AND currency = $2;

-- name: AddBondDeposited :exec
INSERT INTO bond_deposited (org_id, currency, amount) VALUES (@org_id, @currency, @amount)
ON CONFLICT (org_id, currency) DO UPDATE SET amount = bond_deposited.amount + excluded.amount;

-- name: TakeBondDeposited :exec
UPDATE bond_deposited SET amount = amount - @amount WHERE org_id = @org_id AND currency = @currency;

-- name: BondHeld :one
-- What is reserved of an operator's bond now.
SELECT coalesce(sum(b.amount), 0)::bigint AS amount
FROM ledger_account a JOIN ledger_balance b ON b.account_id = a.id
WHERE a.kind = 'bond_hold' AND a.org_id = @org_id AND a.currency = @currency AND a.retired_at IS NULL;

-- name: HasBond :one
-- Whether an org has ever had a bond.
SELECT EXISTS (SELECT FROM ledger_account WHERE kind = 'host_bond' AND owner = @org_id AND currency = @currency);

-- name: BondOperators :many
-- What placement knows of operators that have a bond or terms of their own: what is free of the bond, and their limits. What
-- disputes of the operator's own payments claim is not free.
SELECT o.id AS org_id, greatest(0, coalesce(b.amount - b.reserved, 0))::bigint AS free, coalesce(t.accept_unbonded, false)::boolean AS accept_unbonded,
       coalesce(t.liability_max, -1)::bigint AS liability_max
FROM (SELECT org_id AS id FROM bond_terms
      UNION SELECT a.org_id FROM ledger_account a WHERE a.kind = 'host_bond' AND a.currency = @currency::text) o
LEFT JOIN bond_terms t ON t.org_id = o.id
LEFT JOIN ledger_account l ON l.kind = 'host_bond' AND l.owner = o.id AND l.currency = @currency
LEFT JOIN ledger_balance b ON b.account_id = l.id;

-- name: BondHostLimits :many
SELECT host_id, liability_max FROM bond_host_terms;

-- name: BondModelMedians :many
-- The median price per GPU-hour of leases since a moment, one price per operator, of GPU models that enough operators rented out.
SELECT gpu_model, (percentile_disc(0.5) WITHIN GROUP (ORDER BY rate))::bigint AS median
FROM (SELECT l.gpu_model, l.host_org_id, (avg(p.rate::numeric / l.gpu_count))::bigint AS rate
      FROM lease l JOIN lease_price p ON p.lease_id = l.id
      WHERE l.id >= @from_id::uuid AND l.gpu_count > 0 AND l.currency = @currency
      GROUP BY l.gpu_model, l.host_org_id) m
GROUP BY gpu_model
HAVING count(*) >= @operators::integer;

-- name: BondLinkedOrgs :many
-- Pairs of an organisation with hosts and another one that look alike: a member, a VAT id, a legal name and address, or a
-- card in common.
WITH operator AS (SELECT DISTINCT org_id AS id FROM host WHERE state <> 'retired'),
legal AS (
    SELECT org_id, country || '/' || regexp_replace(lower(name), '[^[:alnum:]]+', '', 'g') || '/'
           || regexp_replace(lower(array_to_string(address, ' ')), '[^[:alnum:]]+', '', 'g') AS who
    FROM org_legal)
SELECT DISTINCT p.operator_org, p.renter_org FROM (
    SELECT a.org_id AS operator_org, b.org_id AS renter_org FROM membership a JOIN membership b ON b.user_id = a.user_id
    UNION SELECT a.org_id, b.org_id FROM org_legal a JOIN org_legal b ON b.vat_id = a.vat_id WHERE a.vat_id <> ''
    UNION SELECT a.org_id, b.org_id FROM legal a JOIN legal b ON b.who = a.who
    UNION SELECT a.org_id, b.org_id FROM payment_card a JOIN payment_card b ON b.fingerprint = a.fingerprint WHERE @cards::boolean
) p JOIN operator o ON o.id = p.operator_org
WHERE p.renter_org <> p.operator_org;

-- name: StandbyOfOrg :many
-- What an operator's leases were paid for standing by, and what its bond paid, newest first.
SELECT s.victim, s.culprit, s.cluster_id, s.ms, s.posted, s.host_posted, s.posted_at, v.rank AS victim_rank, c.rank AS culprit_rank,
       v.host_org_id = @org_id AS received, h.name AS host_name, v.currency
FROM standby s JOIN lease v ON v.id = s.victim JOIN lease c ON c.id = s.culprit
JOIN host h ON h.id = CASE WHEN v.host_org_id = @org_id THEN v.host_id ELSE c.host_id END
WHERE (v.host_org_id = @org_id OR c.host_org_id = @org_id) AND v.currency = @currency
ORDER BY s.posted_at DESC, s.victim, s.culprit LIMIT @max_rows;

-- name: ReliefOfOrg :many
SELECT s.victim, s.cluster_id, s.ms, s.host_posted, s.posted_at, v.rank, h.name AS host_name, v.currency
FROM standby_relief s JOIN lease v ON v.id = s.victim JOIN host h ON h.id = v.host_id
WHERE v.host_org_id = @org_id AND v.currency = @currency
ORDER BY s.posted_at DESC, s.victim LIMIT @max_rows;

-- name: ReliefByCluster :many
-- scan: page
-- What the platform paid for standstills, by cluster, the most first.
SELECT r.cluster_id, c.org_id, c.name, sum(r.host_posted)::bigint AS relief, sum(r.ms)::bigint AS ms, max(r.posted_at)::timestamptz AS posted_at,
       coalesce((SELECT sum(m.posted - m.host_posted) FROM lease l JOIN lease_meter m ON m.lease_id = l.id WHERE l.cluster_id = r.cluster_id), 0)::bigint AS usage_fee
FROM standby_relief r JOIN cluster c ON c.id = r.cluster_id
WHERE r.posted_at > statement_timestamp() - interval '1 day' * @days::integer
GROUP BY r.cluster_id, c.org_id, c.name ORDER BY relief DESC LIMIT @max_rows;

-- name: BondPairBans :many
-- Pairs that are not placed together now: a renter's organisation and a host, or what that host is enrolled as now; or two operators.
SELECT p.a, p.b FROM pair_ban p WHERE p.until > statement_timestamp()
UNION
SELECT p.a, e.heir_id FROM pair_ban p
JOIN host_heir e ON e.host_id = p.b AND e.same_org AND e.before_at > p.until - make_interval(secs => @lasts_s::bigint)
WHERE p.until > statement_timestamp();

-- name: BondGangStrikes :many
-- What counts against the hosts that may be banned from gangs now, oldest first: those struck three times or more within the last eight
-- days, under what they are enrolled as now. The longest ban is seven days. Two hosts of one operator that receive nothing from each other
-- do not count as opponents. Nothing counts against another organisation, which perhaps bought the machine.
WITH recent AS (
    SELECT DISTINCT s.host_id FROM gang_strike s WHERE s.kind <> 'doubt' AND s.at > statement_timestamp() - interval '8 days'
), struck AS (
    SELECT DISTINCT e.heir_id, s.id, s.against_org, s.at
    FROM recent r JOIN gang_strike s ON s.host_id = r.host_id JOIN host h ON h.id = s.host_id
    JOIN host_heir e ON e.host_id = s.host_id AND e.same_org AND e.before_at > s.at
    WHERE s.kind <> 'doubt' AND s.against_org IS DISTINCT FROM h.org_id
)
SELECT k.heir_id AS host_id, k.against_org, k.at
FROM struck k
WHERE k.heir_id IN (SELECT x.heir_id FROM struck x WHERE x.at > statement_timestamp() - interval '8 days' GROUP BY x.heir_id HAVING count(*) >= 3)
ORDER BY k.heir_id, k.at;

-- name: BondRelistLocks :many
-- Hosts by whose fault a run ended within the last seconds, and what they are enrolled as now, by whatever organisation.
SELECT DISTINCT e.heir_id AS host_id
FROM gang_strike s JOIN host_heir e ON e.host_id = s.host_id AND e.before_at > s.at
WHERE s.kind = 'loss' AND s.kind <> 'doubt' AND s.at > statement_timestamp() - make_interval(secs => @seconds::bigint);

-- name: SuspensionsOfCluster :many
-- Decided time of a cluster that its renter does not pay for, in order of time.
SELECT n, from_ms, to_ms, class, culprits, decided_at FROM suspension WHERE cluster_id = $1 ORDER BY from_ms, to_ms, n;

-- name: SuspensionsOf :many
-- Decided time of clusters that their renters do not pay for, in order of time, with the ranks to blame.
SELECT s.cluster_id, s.n, s.from_ms, s.to_ms, s.class,
       ARRAY(SELECT l.rank FROM lease l WHERE l.id = ANY (s.culprits) ORDER BY l.rank)::integer[] AS ranks
FROM suspension s WHERE s.cluster_id = ANY (@clusters::uuid[]) ORDER BY s.cluster_id, s.from_ms, s.to_ms, s.n;

-- name: EvidenceOf :many
-- scan: page
-- What decided suspensions rest on: of the ranks to blame, or of all where none is, the reports that were missing
-- or late, the time without proof, and the peers from which nothing was received. peer is -1 where there is none.
SELECT s.cluster_id, s.n, e.kind::text AS kind, l.rank, e.peer::integer AS peer, e.from_ms::bigint AS from_ms, e.to_ms::bigint AS to_ms
FROM suspension s
JOIN lease l ON l.cluster_id = s.cluster_id AND extract(epoch FROM l.created_at) * 1000 < s.to_ms
    AND coalesce(extract(epoch FROM l.ended_at) * 1000, 9223372036854775807) > s.from_ms
CROSS JOIN LATERAL (
    SELECT CASE q.kind WHEN 'late' THEN 'late_reports' ELSE 'missing_reports' END AS kind, -1 AS peer, q.from_ms, q.to_ms
    FROM silence q WHERE q.host_id = l.host_id AND q.from_ms < s.to_ms AND q.to_ms > s.from_ms
    UNION ALL
    SELECT CASE WHEN g.unwell THEN 'not_well' ELSE 'not_proven' END, -1, greatest(g.from_ms, s.from_ms), least(g.to_ms, s.to_ms)
    FROM rank_gap g WHERE g.lease_id = l.id AND g.from_ms < s.to_ms AND g.to_ms > s.from_ms
    UNION ALL
    SELECT 'did_not_hear', d.peer, greatest(d.from_ms, s.from_ms), least(d.to_ms, s.to_ms)
    FROM deaf_span d WHERE d.lease_id = l.id AND d.from_ms < s.to_ms AND d.to_ms > s.from_ms
) e
WHERE s.cluster_id = ANY (@clusters::uuid[]) AND s.class <> 'platform'
  AND (cardinality(s.culprits) = 0 OR l.id = ANY (s.culprits)
       OR e.peer IN (SELECT c.rank FROM lease c WHERE c.id = ANY (s.culprits)))
ORDER BY s.cluster_id, s.n, e.from_ms, l.rank, e.peer, e.kind
LIMIT 5000;

-- name: RanksOf :many
-- The hosts of clusters' ranks, replaced ones first.
SELECT l.cluster_id, l.rank, l.host_id, l.host_org_id, h.name AS host_name
FROM lease l JOIN host h ON h.id = l.host_id WHERE l.cluster_id = ANY (@clusters::uuid[]) ORDER BY l.cluster_id, l.rank, l.created_at;

-- name: ClusterUsageFee :one
-- The platform's fee on what is booked of a cluster's usage, less what was given back of it.
SELECT (coalesce((SELECT sum(m.posted - m.host_posted) FROM lease l JOIN lease_meter m ON m.lease_id = l.id WHERE l.cluster_id = @cluster_id), 0)
      - coalesce((SELECT sum(c.credited - c.host_part) FROM service_credit c WHERE c.cluster_id = @cluster_id), 0)
      - coalesce((SELECT sum(t.amount) FROM ledger_tx x JOIN ledger_transfer t ON t.tx_id = x.id JOIN ledger_account a ON a.id = t.debit_account_id
                  WHERE x.ref = @ref::text AND x.kind = 'compensation' AND a.kind = 'platform_fee'), 0))::bigint AS fee;

-- name: ClusterUndecided :one
-- Whether something that standby depends on may change still: a lease whose charge may, or time of which it is not decided
-- whether it counts.
SELECT (EXISTS (SELECT FROM lease i WHERE i.cluster_id = @cluster_id AND i.settled_at IS NULL)
     OR EXISTS (SELECT FROM undecided_span u WHERE u.cluster_id = @cluster_id AND u.to_ms IS NULL)
     OR EXISTS (SELECT FROM cluster_window w WHERE w.cluster_id = @cluster_id AND w.closed_ms IS NULL)
     OR EXISTS (SELECT FROM lease l JOIN lease_meter m ON m.lease_id = l.id WHERE l.cluster_id = @cluster_id AND m.frozen))::boolean AS undecided;

-- name: GangStrikesOfHosts :many
-- scan: page
-- What counts against hosts in gangs, by host, kind and opponent, the latest first.
SELECT s.host_id, h.name AS host_name, h.org_id, s.kind, s.against_org, count(*) AS strikes, max(s.at)::timestamptz AS last_at
FROM gang_strike s JOIN host h ON h.id = s.host_id
WHERE s.at > statement_timestamp() - interval '1 day' * @days::integer
GROUP BY s.host_id, h.name, h.org_id, s.kind, s.against_org
ORDER BY max(s.at) DESC, s.host_id LIMIT @max_rows;

-- name: GangPairBans :many
-- scan: page
SELECT p.a, p.b, p.until, (ha.id IS NOT NULL)::boolean AS a_is_host, (hb.id IS NOT NULL)::boolean AS b_is_host,
       coalesce(ha.name, oa.name, '')::text AS a_name, coalesce(hb.name, ob.name, '')::text AS b_name
FROM pair_ban p LEFT JOIN host ha ON ha.id = p.a LEFT JOIN host hb ON hb.id = p.b LEFT JOIN org oa ON oa.id = p.a LEFT JOIN org ob ON ob.id = p.b
WHERE p.until > statement_timestamp() ORDER BY p.until DESC, p.a, p.b LIMIT @max_rows;

-- name: UnbilledByRenter :many
-- scan: page
-- Time of renters' clusters that was not billed because not every rank was proven up, the most first.
SELECT c.org_id, o.name, count(DISTINCT s.cluster_id) AS clusters, count(*) AS suspensions, sum(s.to_ms - s.from_ms)::bigint AS ms,
       coalesce(sum(s.to_ms - s.from_ms) FILTER (WHERE s.class = 'undecided'), 0)::bigint AS undecided_ms
FROM suspension s JOIN cluster c ON c.id = s.cluster_id JOIN org o ON o.id = c.org_id
WHERE s.decided_at > statement_timestamp() - interval '1 day' * @days::integer
GROUP BY c.org_id, o.name ORDER BY ms DESC, c.org_id LIMIT @max_rows;

-- name: UnbilledByOperator :many
-- scan: page
-- Time for which operators' hosts are to blame, the most first. Time for which hosts of several are to blame counts for each.
SELECT x.org_id, o.name, count(DISTINCT x.cluster_id) AS clusters, count(*) AS suspensions, sum(x.ms)::bigint AS ms
FROM (SELECT DISTINCT s.cluster_id, s.n, l.host_org_id AS org_id, s.to_ms - s.from_ms AS ms
      FROM suspension s JOIN lease l ON l.id = ANY (s.culprits)
      WHERE s.decided_at > statement_timestamp() - interval '1 day' * @days::integer) x
JOIN org o ON o.id = x.org_id
GROUP BY x.org_id, o.name ORDER BY ms DESC, x.org_id LIMIT @max_rows;
