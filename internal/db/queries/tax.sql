-- name: InsertTaxEntry :exec
INSERT INTO tax_entry (key, org_id, kind, ref, country, vat_id, reason, name, ppm, net, tax, currency)
VALUES (@key, @org_id, @kind, @ref, @country, @vat_id, @reason, @name, @ppm, @net, @tax, @currency);
