-- name: OrgsOfUser :many
SELECT m.org_id, o.name, (SELECT count(*) FROM membership x WHERE x.org_id = m.org_id AND x.user_id <> m.user_id) AS others,
       (SELECT count(*) FROM membership x WHERE x.org_id = m.org_id AND x.user_id <> m.user_id AND x.role = 'owner') AS other_owners
FROM membership m JOIN org o ON o.id = m.org_id WHERE m.user_id = $1 ORDER BY m.org_id;

-- name: OrgObstacles :one
-- What keeps an org from being left without members.
SELECT (SELECT count(*) FROM cluster c WHERE c.org_id = @org_id AND c.state NOT IN ('released', 'failed')) AS clusters,
       (SELECT count(*) FROM lease l WHERE l.renter_org_id = @org_id AND l.settled_at IS NULL) AS leases,
       (SELECT count(*) FROM host h WHERE h.org_id = @org_id AND h.state <> 'retired') AS hosts,
       (SELECT count(*) FROM dispute d WHERE d.org_id = @org_id AND d.state = 'open') AS disputes,
       (SELECT count(*) FROM payout p WHERE p.org_id = @org_id AND p.state = 'pending') AS payouts,
       (SELECT count(*) FROM refund r WHERE r.org_id = @org_id AND r.state = 'pending')
       + (SELECT count(*) FROM topup t WHERE t.org_id = @org_id AND t.state = 'pending') AS payments,
       (SELECT count(*) FROM payment_card k WHERE k.org_id = @org_id AND k.removed_at IS NULL) AS cards,
       (SELECT count(*) FROM postpaid_org p WHERE p.org_id = @org_id AND p.state <> 'off') AS postpaid,
       (SELECT coalesce(sum(b.amount) FILTER (WHERE b.amount > 0), 0) FROM ledger_account a JOIN ledger_balance b ON b.account_id = a.id WHERE a.org_id = @org_id)::bigint AS credit,
       (SELECT coalesce(sum(b.amount) FILTER (WHERE b.amount < 0), 0) FROM ledger_account a JOIN ledger_balance b ON b.account_id = a.id WHERE a.org_id = @org_id)::bigint AS owed,
       (SELECT coalesce(sum(greatest(0, div(m.numerator, 3600000000000000000) - m.posted)), 0) FROM data_meter m JOIN data_domain d ON d.id = m.domain_id
        WHERE d.org_id = @org_id AND m.unpaid_since IS NOT NULL)::bigint AS storage;

-- name: IsAdmin :one
SELECT admin FROM app_user WHERE id = $1;

-- name: EraseUser :exec
-- The marker cannot be an e-mail address, and nothing hashes to the empty password hash.
UPDATE app_user SET email = 'deleted:' || id::text, name = '', password_hash = '', admin = false, email_verified_at = NULL WHERE id = $1;

-- name: EraseTokensOfUser :exec
UPDATE api_token SET name = 'deleted', hint = '', secret_hash = decode(replace(id::text, '-', ''), 'hex'), revoked_at = coalesce(revoked_at, clock_timestamp())
WHERE user_id = $1;

-- name: EraseSSHKeysOfUser :exec
DELETE FROM ssh_key WHERE user_id = $1;

-- name: EraseSessionsOfUser :exec
DELETE FROM session WHERE user_id = $1;

-- name: EraseVerificationsOfUser :exec
DELETE FROM email_verification WHERE user_id = $1;

-- name: EraseMemberships :exec
DELETE FROM membership WHERE user_id = $1;

-- name: EraseOrgName :exec
UPDATE org SET name = 'deleted' WHERE id = $1;

-- name: ExportUser :one
-- All that is kept of a user and, of the orgs that have no other member, what names it.
SELECT jsonb_build_object(
    'exported_at', clock_timestamp(),
    'user', (SELECT jsonb_build_object('id', u.id, 'email', u.email, 'name', u.name, 'admin', u.admin, 'email_verified_at', u.email_verified_at, 'created_at', u.created_at)
             FROM app_user u WHERE u.id = @user_id),
    'organisations', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', o.id, 'name', o.name, 'zone', o.zone, 'role', m.role, 'since', m.created_at,
             'legal', (SELECT to_jsonb(l) - 'org_id' FROM org_legal l WHERE l.org_id = o.id))), '[]')
             FROM membership m JOIN org o ON o.id = m.org_id WHERE m.user_id = @user_id),
    'api_tokens', (SELECT coalesce(jsonb_agg(to_jsonb(t) - 'secret_hash'), '[]') FROM api_token t WHERE t.user_id = @user_id),
    'ssh_keys', (SELECT coalesce(jsonb_agg(to_jsonb(k)), '[]') FROM ssh_key k WHERE k.user_id = @user_id),
    'sessions', (SELECT coalesce(jsonb_agg(to_jsonb(s) - 'secret_hash' - 'previous_hash'), '[]') FROM session s WHERE s.user_id = @user_id),
    'mails', (SELECT coalesce(jsonb_agg(to_jsonb(x) - 'body'), '[]') FROM mail x WHERE x.user_id = @user_id),
    'notices', (SELECT coalesce(jsonb_agg(to_jsonb(n)), '[]') FROM notice n JOIN membership m ON m.org_id = n.org_id WHERE m.user_id = @user_id),
    'acts', (SELECT coalesce(jsonb_agg(to_jsonb(e)), '[]') FROM audit_event e JOIN membership m ON m.org_id = e.org_id WHERE m.user_id = @user_id AND e.user_id = @user_id),
    'payments', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', t.id, 'amount_nano', t.amount, 'tax_nano', t.tax, 'currency', t.currency, 'state', t.state, 'created_at', t.created_at,
             'receipt', (SELECT r.content FROM receipt r WHERE r.topup_id = t.id))), '[]') FROM topup t JOIN membership m ON m.org_id = t.org_id WHERE m.user_id = @user_id),
    'buckets', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', b.id, 'org_id', b.org_id, 'name', b.name, 'endpoint', b.endpoint, 'region', b.region,
                'bucket', b.bucket, 'prefix', b.prefix, 'mode', b.mode, 'access_key_id', b.access_key_id, 'created_at', b.created_at) ORDER BY b.name), '[]')
             FROM bucket b JOIN membership m ON m.org_id = b.org_id WHERE m.user_id = @user_id),
    'volumes', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', v.id, 'org_id', v.org_id, 'name', v.name, 'size_limit', v.size_limit, 'created_at', v.created_at,
             'snapshots', (SELECT coalesce(jsonb_agg(jsonb_build_object('seq', s.seq, 'label', s.label, 'cause', s.cause, 'bytes', s.logical_bytes, 'files', s.files,
                 'cut_at', s.cut_at, 'committed_at', s.committed_at) ORDER BY s.seq), '[]') FROM volume_snapshot s WHERE s.volume_id = v.id AND s.deleted_at IS NULL)) ORDER BY v.name), '[]')
             FROM volume v JOIN membership m ON m.org_id = v.org_id WHERE m.user_id = @user_id AND v.deleted_at IS NULL),
    'shared_data', (SELECT coalesce(jsonb_agg(jsonb_build_object('id', f.id, 'org_id', f.org_id, 'file_system', s.name, 'bytes', f.used_bytes,
             'created_at', f.created_at) ORDER BY s.name), '[]')
             FROM shared_folder f JOIN shared_fs s ON s.id = f.shared_id JOIN membership m ON m.org_id = f.org_id
             WHERE m.user_id = @user_id AND f.state <> 'erased'),
    'documents', (SELECT coalesce(jsonb_agg(to_jsonb(d)), '[]') FROM document d JOIN membership m ON m.org_id = d.org_id WHERE m.user_id = @user_id)
)::jsonb AS data;
