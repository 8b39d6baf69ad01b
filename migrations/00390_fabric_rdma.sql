-- +goose Up
-- Hosts whose operator lends the ports of an RDMA network. RDMA passes no firewall and no WireGuard, so a fabric has one
-- renting organisation at a time: the claim of a fabric says for which. It is open as long as a claim on a GPU with the
-- same ref (a lease or a quote) is open, so that it ends with the last of them, however that ends.
ALTER TABLE host
    ADD COLUMN rdma_gbps double precision NOT NULL DEFAULT 0, -- of all ports that are lent and up
    ADD COLUMN rdma_rails integer NOT NULL DEFAULT 0;
CREATE TABLE fabric_claim (
    ref        uuid PRIMARY KEY,
    fabric_id  uuid NOT NULL REFERENCES fabric,
    org_id     uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX fabric_claim_fabric ON fabric_claim (fabric_id);
-- The fabric's row is locked, so that of two transactions which claim it at the same time the later one sees the other's
-- claim.
-- +goose StatementBegin
CREATE FUNCTION fabric_claim_sole() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM fabric WHERE id = NEW.fabric_id FOR NO KEY UPDATE;
    IF EXISTS (
        SELECT FROM fabric_claim f JOIN gpu_claim c ON c.ref = f.ref AND c.ended_at IS NULL
        WHERE f.fabric_id = NEW.fabric_id AND f.org_id <> NEW.org_id
          AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())) THEN
        RAISE unique_violation USING CONSTRAINT = 'fabric_claim_sole',
            MESSAGE = 'another organisation rents the fabric';
    END IF;
    DELETE FROM fabric_claim f
    WHERE f.fabric_id = NEW.fabric_id AND f.ref <> NEW.ref AND f.created_at < clock_timestamp() - interval '1 hour'
      AND NOT EXISTS (SELECT FROM gpu_claim c WHERE c.ref = f.ref AND c.ended_at IS NULL);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER fabric_claim_sole AFTER INSERT ON fabric_claim FOR EACH ROW EXECUTE FUNCTION fabric_claim_sole();
