-- name: BudgetsOf :many
-- Those that a cluster of the project counts against.
SELECT b.id, b.project, b.cap, b.max_rate, b.max_duration_s, b.committed, b.created_at
FROM budget b
WHERE b.org_id = @org_id AND b.currency = @currency AND (b.project = '' OR b.project = @project::text)
ORDER BY b.project;

-- name: CommitBudgets :exec
UPDATE budget b SET committed = b.committed + @amount::bigint
WHERE b.org_id = @org_id AND b.currency = @currency AND (b.project = '' OR b.project = @project::text);

-- name: ReturnToBudgets :exec
-- To those that counted it: a budget that was made after since has not, and would let more be spent than its cap.
UPDATE budget b SET committed = greatest(0, b.committed - @amount::bigint)
WHERE b.org_id = @org_id AND b.currency = @currency AND (sqlc.narg(since)::timestamptz IS NULL OR b.created_at <= sqlc.narg(since))
  AND (b.project = '' OR b.project = (SELECT c.project FROM cluster c WHERE c.id = @cluster_id));

-- name: SpentOfBudgets :many
-- The caps that the clusters count against, and what of each is spent: what is committed less what is held still. A budget
-- of which less than half is committed has reached no level and is left out.
SELECT b.id, b.org_id, b.project, b.cap::bigint AS cap, b.currency, b.committed, (b.committed - (
    SELECT coalesce(sum(bal.amount), 0)
    FROM ledger_account a JOIN ledger_balance bal ON bal.account_id = a.id LEFT JOIN cluster c ON c.id = a.owner
    WHERE a.kind = 'renter_hold' AND a.retired_at IS NULL AND a.org_id = b.org_id AND a.currency = b.currency AND (b.project = '' OR c.project = b.project)))::bigint AS spent
FROM (SELECT unnest(@orgs::uuid[]) AS org_id, unnest(@clusters::uuid[]) AS cluster_id, unnest(@currencies::text[]) AS currency) u
JOIN budget b ON b.org_id = u.org_id AND b.currency = u.currency
    AND (b.project = '' OR b.project = (SELECT x.project FROM cluster x WHERE x.id = u.cluster_id))
WHERE b.cap IS NOT NULL AND 2 * b.committed >= b.cap
GROUP BY b.id
ORDER BY b.id;

-- name: BudgetsToWatch :many
-- Those of which at least half is committed, by id, with what is spent of each: see SpentOfBudgets.
SELECT b.id, b.org_id, b.project, b.cap::bigint AS cap, b.currency, b.committed, (b.committed - (
    SELECT coalesce(sum(bal.amount), 0)
    FROM ledger_account a JOIN ledger_balance bal ON bal.account_id = a.id LEFT JOIN cluster c ON c.id = a.owner
    WHERE a.kind = 'renter_hold' AND a.retired_at IS NULL AND a.org_id = b.org_id AND a.currency = b.currency
      AND (b.project = '' OR c.project = b.project)))::bigint AS spent
FROM budget b
WHERE b.id > @after::uuid AND b.cap IS NOT NULL AND 2 * b.committed >= b.cap
ORDER BY b.id
LIMIT @max_rows;

-- name: SetBudget :one
INSERT INTO budget (id, org_id, project, cap, max_rate, max_duration_s, currency, committed)
VALUES (@id, @org_id, @project::text, sqlc.narg(cap), sqlc.narg(max_rate), sqlc.narg(max_duration_s), @currency, (
    SELECT coalesce(sum(bal.amount), 0)::bigint
    FROM ledger_account a JOIN ledger_balance bal ON bal.account_id = a.id LEFT JOIN cluster c ON c.id = a.owner
    WHERE a.kind = 'renter_hold' AND a.retired_at IS NULL AND a.org_id = @org_id AND a.currency = @currency AND (@project::text = '' OR c.project = @project::text)))
ON CONFLICT (org_id, project) DO UPDATE SET cap = EXCLUDED.cap, max_rate = EXCLUDED.max_rate, max_duration_s = EXCLUDED.max_duration_s
RETURNING id;

-- name: Budgets :many
-- An org's, or one of them, with what is held now of what is committed: read at one moment, so their difference is what is spent.
SELECT b.id, b.org_id, b.project, b.cap, b.max_rate, b.max_duration_s, b.committed, b.currency, b.created_at, (
    SELECT coalesce(sum(bal.amount), 0)
    FROM ledger_account a JOIN ledger_balance bal ON bal.account_id = a.id LEFT JOIN cluster c ON c.id = a.owner
    WHERE a.kind = 'renter_hold' AND a.retired_at IS NULL AND a.org_id = b.org_id AND a.currency = b.currency AND (b.project = '' OR c.project = b.project))::bigint AS held
FROM budget b
WHERE b.org_id = @org_id AND (sqlc.narg(one)::uuid IS NULL OR b.id = sqlc.narg(one))
ORDER BY b.project;

-- name: DeleteBudget :execrows
DELETE FROM budget WHERE id = $1 AND org_id = $2;
