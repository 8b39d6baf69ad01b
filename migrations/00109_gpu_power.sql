-- +goose Up
-- What a GPU may draw and what it was made for, in watts; null = not known. Offers show both, and a search can ask for them.
-- Of GPUs that are known already the last inventory says them.
ALTER TABLE gpu
    ADD COLUMN power_limit_w integer,
    ADD COLUMN power_default_w integer;
UPDATE gpu
SET power_limit_w = CASE WHEN w.limit_w BETWEEN 1 AND 100000 THEN w.limit_w END,
    power_default_w = CASE WHEN w.default_w BETWEEN 1 AND 100000 THEN w.default_w END
FROM (SELECT id, (facts #>> '{power_limit_mw,value}')::bigint / 1000 AS limit_w, (facts #>> '{power_default_mw,value}')::bigint / 1000 AS default_w FROM gpu) w
WHERE w.id = gpu.id AND coalesce(w.limit_w, w.default_w) IS NOT NULL;
