-- name: EraseInvoices :execrows
UPDATE invoice SET content = '{"erased": true}'
WHERE issued_at < @before::timestamptz AND content <> '{"erased": true}' AND retention_over(issued_at);
