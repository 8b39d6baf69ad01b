-- name: EraseTaxVATIDs :execrows
UPDATE tax_entry SET vat_id = '' WHERE created_at < @before::timestamptz AND vat_id <> '' AND retention_over(created_at);
