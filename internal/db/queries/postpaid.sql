-- name: AddPostpaidOrg :exec
-- So that there is a row to lock.
INSERT INTO postpaid_org (org_id, currency, state, credit_limit, reason, changed_by)
SELECT o.id, @currency, 'off', 0, '', @changed_by FROM org o WHERE o.id = @org_id
ON CONFLICT (org_id) DO NOTHING;

-- name: PostpaidOrgForUpdate :one
SELECT org_id, currency, state, credit_limit, stopped, reason, changed_by, changed_at, created_at
FROM postpaid_org WHERE org_id = $1 FOR UPDATE;

-- name: PostpaidOrg :one
SELECT org_id, currency, state, credit_limit, stopped, reason, changed_by, changed_at, created_at
FROM postpaid_org WHERE org_id = $1;

-- name: SetPostpaidTerms :exec
UPDATE postpaid_org SET state = @state, credit_limit = @credit_limit, reason = @reason, changed_by = @changed_by, changed_at = clock_timestamp()
WHERE org_id = @org_id;

-- name: ListPostpaidOrgs :many
SELECT p.org_id, o.name, p.currency, p.state, p.credit_limit, p.stopped, p.reason, p.changed_at
FROM postpaid_org p JOIN org o ON o.id = p.org_id
WHERE p.org_id > @after::uuid AND (p.changed_at > p.created_at OR p.state <> 'off')
ORDER BY p.org_id
LIMIT @max_rows;
