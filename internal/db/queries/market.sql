-- What the market sells: offers and their prices.

-- name: SyncOffers :exec
INSERT INTO offer (id, host_id, gpu_model)
SELECT n.id, @host_id, n.model
FROM (SELECT unnest(@ids::uuid[]) AS id, unnest(@models::text[]) AS model) n
ON CONFLICT (host_id, gpu_model) DO NOTHING;

-- name: PresentModels :many
SELECT DISTINCT model FROM gpu WHERE host_id = @host_id AND present AND removed_at IS NULL ORDER BY model;

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

-- name: InsertOfferPrice :exec
INSERT INTO offer_price (offer_id, price, changed_by) VALUES (@offer_id, @price, @changed_by);

-- name: PriceChangesOfHost :many
-- The host's last changes of price, each with the price before it (0: none).
SELECT o.gpu_model, p.price, p.at, coalesce(lag(p.price) OVER (PARTITION BY p.offer_id ORDER BY p.at), 0)::bigint AS before
FROM offer_price p JOIN offer o ON o.id = p.offer_id
WHERE o.host_id = @host_id
ORDER BY p.at DESC, o.gpu_model
LIMIT @max_rows;
