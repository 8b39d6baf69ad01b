-- name: InsertServiceCredit :exec
INSERT INTO service_credit (lease_id, cluster_id, reason, from_ms, through_ms, inducible) VALUES ($1, $2, $3, $4, $5, $6)
ON CONFLICT (lease_id) DO NOTHING;

-- name: CreditFacts :one
-- What bounds the credits of a renter for failures that it could have caused: what it was charged for leases that ran
-- within 30 days, less what of it was credited for any reason, what was credited for such failures in that time, and whether another such
-- credit from the same operator is at most a week old. The lease in question is left out of the credits.
SELECT coalesce((SELECT sum(m.posted - coalesce(c.credited, 0))
                 FROM (SELECT e.id FROM lease e WHERE e.renter_org_id = @renter AND e.ended_at > statement_timestamp() - interval '30 days'
                       UNION ALL
                       SELECT r.id FROM lease r WHERE r.renter_org_id = @renter AND r.settled_at IS NULL AND r.ended_at IS NULL) l
                 JOIN lease_meter m ON m.lease_id = l.id LEFT JOIN service_credit c ON c.lease_id = l.id), 0)::bigint AS charged,
       coalesce((SELECT sum(greatest(c.credited, CASE WHEN l.settled_at IS NULL THEN coalesce(c.at_once, 0) ELSE 0 END)) -- what may still be booked counts
                 FROM service_credit c JOIN lease l ON l.id = c.lease_id
                 WHERE l.renter_org_id = @renter AND c.inducible AND c.lease_id <> @lease_id AND c.created_at > statement_timestamp() - interval '30 days'), 0)::bigint AS credited,
       EXISTS (SELECT FROM service_credit c JOIN lease l ON l.id = c.lease_id
               WHERE l.renter_org_id = @renter AND l.host_org_id = @operator AND c.inducible AND c.lease_id <> @lease_id
                 AND c.state <> 'refused' AND c.created_at > statement_timestamp() - interval '7 days') AS pair_credited;

-- name: CapServiceCredit :exec
-- Once: how much of a credit is booked without a decision.
UPDATE service_credit SET state = @state, at_once = @at_once::bigint
WHERE lease_id = @lease_id AND state = 'booked' AND at_once IS NULL AND credited = 0 AND decided_at IS NULL;

-- name: LockClusterOfCredit :exec
SELECT FROM cluster WHERE id = $1 FOR UPDATE;

-- name: HeldServiceCredits :many
-- scan: page
SELECT c.lease_id, c.cluster_id, c.reason, c.from_ms, c.through_ms, c.created_at, c.credited, (l.settled_at IS NOT NULL)::boolean AS settled,
       l.rank, l.host_id, h.name AS host_name, l.renter_org_id, l.host_org_id, l.currency
FROM service_credit c JOIN lease l ON l.id = c.lease_id JOIN host h ON h.id = l.host_id
WHERE c.state = 'held'
ORDER BY c.created_at
LIMIT @max_rows;

-- name: DecideServiceCredit :one
UPDATE service_credit SET state = @state, decided_by = @decided_by, decided_at = clock_timestamp(), decided_why = @why
WHERE lease_id = @lease_id AND state = 'held'
RETURNING cluster_id;

-- name: ServiceCredits :many
SELECT c.lease_id, c.cluster_id, c.reason, c.from_ms, c.through_ms, c.credited, c.host_part, c.created_at, c.state, c.at_once, l.rank, l.host_id, h.name AS host_name
FROM service_credit c JOIN lease l ON l.id = c.lease_id JOIN host h ON h.id = l.host_id
WHERE c.cluster_id = $1 ORDER BY c.lease_id;

-- name: ServiceCreditsOfHost :many
SELECT c.lease_id, c.reason, c.credited, c.host_part, c.created_at
FROM service_credit c JOIN lease l ON l.id = c.lease_id
WHERE l.host_id = $1 ORDER BY c.lease_id;

-- name: SetServiceCredit :exec
UPDATE service_credit SET credited = $2, host_part = $3 WHERE lease_id = $1;

-- name: LedgerTxByKey :one
SELECT id FROM ledger_tx WHERE key = $1;
