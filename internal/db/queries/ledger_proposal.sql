-- name: InsertLedgerProposal :exec
INSERT INTO ledger_proposal (id, debit_kind, credit_kind, currency, amount, reason, proposed_by)
VALUES (@id, @debit_kind, @credit_kind, @currency, @amount, @reason, @proposed_by);

-- name: LedgerProposalForUpdate :one
SELECT id, debit_kind, credit_kind, currency, amount, reason, proposed_by, created_at, state, decided_by, decision, decided_at
FROM ledger_proposal WHERE id = $1 FOR UPDATE;

-- name: DecideLedgerProposal :exec
UPDATE ledger_proposal SET state = @state, decided_by = @decided_by, decision = @decision, decided_at = clock_timestamp() WHERE id = @id AND state = 'open';

-- name: LedgerProposals :many
-- scan: page
-- Newest first; with @open only those that wait.
SELECT p.id, p.debit_kind, p.credit_kind, p.currency, p.amount, p.reason, p.proposed_by, p.created_at, p.state, p.decided_by, p.decision, p.decided_at,
       a.email AS proposer, coalesce(b.email, '')::text AS decider
FROM ledger_proposal p JOIN app_user a ON a.id = p.proposed_by LEFT JOIN app_user b ON b.id = p.decided_by
WHERE (@before::uuid = '00000000-0000-0000-0000-000000000000' OR p.id < @before::uuid) AND (NOT @open::boolean OR p.state = 'open')
ORDER BY p.id DESC
LIMIT @max_rows;

-- name: LedgerProposal :one
SELECT p.id, p.debit_kind, p.credit_kind, p.currency, p.amount, p.reason, p.proposed_by, p.created_at, p.state, p.decided_by, p.decision, p.decided_at,
       a.email AS proposer, coalesce(b.email, '')::text AS decider
FROM ledger_proposal p JOIN app_user a ON a.id = p.proposed_by LEFT JOIN app_user b ON b.id = p.decided_by
WHERE p.id = $1;

-- name: LockLedgerProposals :exec
-- One proposal is booked at a time: what is left of an account that has no balance row is read before. Released with the transaction.
SELECT pg_advisory_xact_lock(727301);

-- name: LedgerOrgMoney :many
-- What an org has in accounts that nothing but itself claims.
SELECT a.kind, a.owner, a.currency
FROM ledger_account a JOIN ledger_balance b ON b.account_id = a.id
WHERE a.org_id = @org AND a.retired_at IS NULL AND b.amount > 0
  AND a.kind IN ('renter_wallet', 'host_pending', 'host_payable', 'host_bond')
ORDER BY a.id;

-- name: OrgsThatGaveUp :many
-- Orgs without members that have money: what was given up before there was an account for it, and what returned since.
SELECT DISTINCT a.org_id
FROM ledger_account a JOIN ledger_balance b ON b.account_id = a.id
WHERE a.org_id IS NOT NULL AND a.retired_at IS NULL AND b.amount > 0
  AND a.kind IN ('renter_wallet', 'host_pending', 'host_payable', 'host_bond')
  AND EXISTS (SELECT FROM org o WHERE o.id = a.org_id AND o.name = 'deleted')
  AND NOT EXISTS (SELECT FROM membership m WHERE m.org_id = a.org_id);
