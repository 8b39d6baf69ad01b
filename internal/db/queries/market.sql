-- What the market sells: offers and their prices.

-- name: AddOffers :exec
-- New offers have their operator's fee, or the usual one.
INSERT INTO offer (id, host_id, gpu_model, host_share_ppm)
SELECT n.id, n.host_id, n.model,
       coalesce((SELECT 1000000 - f.fee_ppm FROM org_fee f JOIN host h ON h.org_id = f.org_id WHERE h.id = n.host_id), @usual_share_ppm::integer)
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@hosts::uuid[]) AS host_id, unnest(@models::text[]) AS model) n
ON CONFLICT (host_id, gpu_model) DO NOTHING;

-- name: ModelsWithoutOffers :many
SELECT DISTINCT g.host_id, g.model FROM gpu g
WHERE g.host_id = ANY(@hosts::uuid[]) AND g.present AND g.removed_at IS NULL
  AND NOT EXISTS (SELECT FROM offer o WHERE o.host_id = g.host_id AND o.gpu_model = g.model)
ORDER BY g.host_id, g.model;

-- name: OffersOfHosts :many
SELECT o.id, o.host_id, o.gpu_model, o.price, o.min_gpus, o.max_duration_s, o.host_share_ppm,
       (SELECT count(*) FROM gpu g WHERE g.host_id = o.host_id AND g.model = o.gpu_model AND g.present AND g.removed_at IS NULL)::integer AS gpus
FROM offer o
WHERE o.host_id = ANY(@hosts::uuid[])
ORDER BY o.host_id, o.gpu_model;

-- name: UpdateOffer :exec
UPDATE offer
SET price = @price, min_gpus = @min_gpus, max_duration_s = @max_duration_s, updated_at = clock_timestamp()
WHERE id = @id;

-- name: SetOrgFee :execrows
INSERT INTO org_fee (org_id, fee_ppm, changed_by) SELECT o.id, @fee_ppm::integer, @changed_by FROM org o WHERE o.id = @org_id
ON CONFLICT (org_id) DO UPDATE SET fee_ppm = excluded.fee_ppm, changed_by = excluded.changed_by, changed_at = clock_timestamp();

-- name: OrgFee :one
SELECT fee_ppm FROM org_fee WHERE org_id = $1;

-- name: HostIDsOfOrg :many
SELECT id FROM host WHERE org_id = $1 ORDER BY id;

-- name: SetOfferShares :exec
UPDATE offer SET host_share_ppm = @share_ppm, updated_at = clock_timestamp()
WHERE host_id = ANY(@hosts::uuid[]) AND host_share_ppm <> @share_ppm;

-- name: InsertOfferPrice :exec
INSERT INTO offer_price (offer_id, price, changed_by) VALUES (@offer_id, @price, @changed_by);

-- name: PriceChangesOfHost :many
-- The host's last changes of price, each with the price before it (0: none).
SELECT o.gpu_model, p.price, p.at, coalesce(lag(p.price) OVER (PARTITION BY p.offer_id ORDER BY p.at), 0)::bigint AS before
FROM offer_price p JOIN offer o ON o.id = p.offer_id
WHERE o.host_id = @host_id
ORDER BY p.at DESC, o.gpu_model
LIMIT @max_rows;

-- name: OfferPricesSince :many
-- The price that an offer had at @since and the changes after it, newest first.
SELECT p.price, p.at FROM offer_price p
WHERE p.offer_id = @offer_id
  AND p.at >= coalesce((SELECT max(b.at) FROM offer_price b WHERE b.offer_id = @offer_id AND b.at <= @since), @since)
ORDER BY p.at DESC
LIMIT 1000;

-- name: RentedSpans :many
-- When a host was rented since @since, unix ms.
SELECT (extract(epoch FROM l.created_at) * 1000)::bigint AS from_ms,
       (extract(epoch FROM coalesce(l.ended_at, statement_timestamp())) * 1000)::bigint AS to_ms
FROM lease l
WHERE l.host_id = @host_id AND (l.ended_at IS NULL OR l.ended_at > @since)
ORDER BY l.created_at DESC
LIMIT 5000;

-- name: MissingReports :many
-- When a rented host's reports were missing, unix ms.
SELECT from_ms, to_ms FROM silence
WHERE host_id = @host_id AND kind = 'missing' AND to_ms > @since_ms
ORDER BY from_ms DESC
LIMIT 5000;
