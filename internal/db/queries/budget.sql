-- name: BudgetsOf :batchmany
-- Those that a cluster of the project counts against.
SELECT b.id, b.project, b.cap, b.max_rate, b.max_duration_s, b.committed, b.created_at
FROM budget b
WHERE b.org_id = @org_id AND b.currency = @currency AND (b.project = '' OR b.project = @project::text)
ORDER BY b.project;

-- name: CommitBudgets :exec
UPDATE budget b SET committed = b.committed + @amount::bigint
WHERE b.org_id = @org_id AND b.currency = @currency AND (b.project = '' OR b.project = @project::text);

-- name: ReturnToBudgets :exec
UPDATE budget b SET committed = b.committed - @amount::bigint
WHERE b.org_id = @org_id AND b.currency = @currency
  AND (b.project = '' OR b.project = (SELECT c.project FROM cluster c WHERE c.id = @cluster_id));

-- name: SetBudget :one
INSERT INTO budget (id, org_id, project, cap, max_rate, max_duration_s, currency, committed)
VALUES (@id, @org_id, @project::text, sqlc.narg(cap), sqlc.narg(max_rate), sqlc.narg(max_duration_s), @currency, (
    SELECT coalesce(sum(bal.amount), 0)::bigint
    FROM ledger_account a JOIN ledger_balance bal ON bal.account_id = a.id LEFT JOIN cluster c ON c.id = a.owner
    WHERE a.kind = 'renter_hold' AND a.org_id = @org_id AND a.currency = @currency AND (@project::text = '' OR c.project = @project::text)))
ON CONFLICT (org_id, project) DO UPDATE SET cap = EXCLUDED.cap, max_rate = EXCLUDED.max_rate, max_duration_s = EXCLUDED.max_duration_s
RETURNING *;

-- name: ListBudgets :many
SELECT id, org_id, project, cap, max_rate, max_duration_s, committed, currency, created_at
FROM budget WHERE org_id = $1 ORDER BY project;

-- name: GetBudget :one
SELECT id, org_id, project, cap, max_rate, max_duration_s, committed, currency, created_at
FROM budget WHERE id = $1 AND org_id = $2;

-- name: DeleteBudget :execrows
DELETE FROM budget WHERE id = $1 AND org_id = $2;
