-- Storage that is not paid for.

-- name: UnpaidStorage :many
-- What an organisation owes for storage, by data domain, and since when.
SELECT m.unpaid_since, greatest(0, div(m.numerator, 3600000000000000000) - m.posted)::bigint AS owed
FROM data_meter m JOIN data_domain d ON d.id = m.domain_id
WHERE d.org_id = @org_id AND m.unpaid_since IS NOT NULL;

-- name: UnpaidVolumes :many
-- Volumes that are to be hidden or erased: storage is unpaid for long enough, and those that are hidden already are so for long
-- enough. after pages through them.
SELECT v.id, v.org_id FROM data_meter m JOIN volume v ON v.domain_id = m.domain_id
WHERE m.unpaid_since <= statement_timestamp() - make_interval(secs => @unpaid_s::double precision)
  AND coalesce(m.kept_until, '-infinity') <= statement_timestamp() AND v.deleted_at IS NULL
  AND coalesce(v.hidden_at, '-infinity') <= statement_timestamp() - make_interval(secs => @hidden_s::double precision) AND v.id > @after
ORDER BY v.id LIMIT 200;

-- name: StorageIsKept :one
-- Whether an organisation's volumes are kept although they are not paid for: a payment is disputed, or it pays by invoice and none is
-- overdue.
SELECT (EXISTS (SELECT FROM dispute x WHERE x.org_id = @org_id AND x.kind = 'dispute' AND x.state = 'open')
     OR EXISTS (SELECT FROM postpaid_org p WHERE p.org_id = @org_id AND p.state <> 'off' AND p.stopped = ''))::boolean;

-- name: HideVolume :exec
UPDATE volume SET hidden_at = @at, wanted_id = NULL, wanted_at = NULL WHERE id = @id;

-- name: ShowVolumes :execrows
-- Those of a locked domain.
UPDATE volume SET hidden_at = NULL WHERE domain_id = @domain_id AND hidden_at IS NOT NULL AND deleted_at IS NULL;

-- name: StorageMeters :many
-- What meters stand at. after pages through them.
SELECT domain_id, through_at, numerator, posted FROM data_meter WHERE domain_id > @after ORDER BY domain_id LIMIT 200;

-- name: DataPrices :many
-- Of a domain, oldest first.
SELECT from_at, price, numerator FROM data_price WHERE domain_id = @domain_id ORDER BY from_at;

-- name: StorageBooked :one
-- What the ledger has of a domain.
SELECT coalesce(sum(f.amount), 0)::bigint FROM ledger_tx x JOIN ledger_transfer f ON f.tx_id = x.id
WHERE x.ref = @ref AND x.kind = 'storage';
