-- +goose Up
-- How many packs of a domain are in the store, may get there, or are being deleted there. Each costs the store and the sweep a request,
-- whatever its size, so each counts for the limits of what is stored.
ALTER TABLE data_domain ADD COLUMN packs bigint NOT NULL DEFAULT 0;
UPDATE data_domain d SET packs = p.packs FROM (SELECT domain_id, count(*) AS packs FROM data_pack GROUP BY domain_id) p WHERE p.domain_id = d.id;

-- +goose StatementBegin
CREATE FUNCTION count_data_packs() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE data_domain d SET packs = d.packs + CASE TG_OP WHEN 'INSERT' THEN c.n ELSE -c.n END
    FROM (SELECT domain_id, count(*) AS n FROM changed GROUP BY domain_id) c WHERE d.id = c.domain_id;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER data_pack_added AFTER INSERT ON data_pack REFERENCING NEW TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_data_packs();
CREATE TRIGGER data_pack_deleted AFTER DELETE ON data_pack REFERENCING OLD TABLE AS changed FOR EACH STATEMENT EXECUTE FUNCTION count_data_packs();

-- +goose Down
DROP TRIGGER data_pack_added ON data_pack;
DROP TRIGGER data_pack_deleted ON data_pack;
DROP FUNCTION count_data_packs();
ALTER TABLE data_domain DROP COLUMN packs;
