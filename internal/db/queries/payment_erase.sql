-- name: EraseCardsOfOrg :exec
-- Cards that were removed. The fingerprint stays: it finds who takes payments back and comes again.
UPDATE payment_card SET brand = '', last4 = '', exp_month = 0, exp_year = 0 WHERE org_id = $1;

-- name: EraseReceipts :execrows
UPDATE receipt SET content = '{"erased": true}'
WHERE issued_at < @before::timestamptz AND content <> '{"erased": true}' AND retention_over(issued_at);

-- name: EraseTopupVATIDs :execrows
UPDATE topup SET tax_vat_id = '' WHERE created_at < @before::timestamptz AND tax_vat_id <> '' AND retention_over(created_at);
