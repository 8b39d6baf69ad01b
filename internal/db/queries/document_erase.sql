-- name: BeginRetentionJob :exec
-- Until the end of the transaction, documents whose retention is over may be erased.
SELECT set_config('muster.retention', 'on', true);

-- name: EraseDocuments :execrows
UPDATE document SET content = '{"erased": true}'
WHERE issued_at < @before::timestamptz AND content NOT IN ('{"erased": true}', '{}') AND retention_over(issued_at);
