-- +goose Up
-- What an organisation may hold or take for nothing counts for its circle: the organisations that it is linked with, directly or
-- through others, by a user who may rent clusters in both or by a card that both have saved. A link that has ended still counts for
-- as long as what was held under it, so ended_at stays for a while.
CREATE TABLE circle_link (
    org_id      uuid NOT NULL REFERENCES org,
    via         text NOT NULL,    -- 'user:' and an id, or 'card:' and a fingerprint
    ended_at    timestamptz,      -- NULL: it lasts
    PRIMARY KEY (org_id, via)
);
CREATE INDEX circle_link_via ON circle_link (via);
CREATE INDEX circle_link_ended ON circle_link (ended_at) WHERE ended_at IS NOT NULL;

-- The roles with the scope to rent clusters.
-- +goose StatementBegin
CREATE FUNCTION role_rents(role text) RETURNS boolean LANGUAGE sql IMMUTABLE AS $$
    SELECT role IN ('owner', 'admin', 'member')
$$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION link_member() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        UPDATE circle_link SET ended_at = clock_timestamp()
        WHERE org_id = OLD.org_id AND via = 'user:' || OLD.user_id AND ended_at IS NULL;
    END IF;
    IF TG_OP <> 'DELETE' THEN
        INSERT INTO circle_link (org_id, via) SELECT NEW.org_id, 'user:' || NEW.user_id WHERE role_rents(NEW.role)
        ON CONFLICT (org_id, via) DO UPDATE SET ended_at = NULL;
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- test: a card of Stripe's sandbox, whose number all organisations of a sandbox use. It links none of them.
ALTER TABLE payment_card ADD COLUMN test boolean NOT NULL DEFAULT false;

-- A card that was removed stays: its owner pays back and forth with it.
-- +goose StatementBegin
CREATE FUNCTION link_card() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO circle_link (org_id, via) SELECT NEW.org_id, 'card:' || NEW.fingerprint WHERE NEW.fingerprint <> '' AND NOT NEW.test
    ON CONFLICT (org_id, via) DO NOTHING;
    RETURN NULL;
END $$;
-- +goose StatementEnd

CREATE TRIGGER membership_linked AFTER INSERT OR DELETE OR UPDATE OF role ON membership FOR EACH ROW EXECUTE FUNCTION link_member();
CREATE TRIGGER payment_card_linked AFTER INSERT OR UPDATE OF fingerprint ON payment_card FOR EACH ROW EXECUTE FUNCTION link_card();
INSERT INTO circle_link (org_id, via)
SELECT org_id, 'user:' || user_id FROM membership WHERE role_rents(role)
UNION SELECT org_id, 'card:' || fingerprint FROM payment_card WHERE fingerprint <> '';

-- The circle of an organisation, itself included, by the links that last or ended after a moment: at most 1000, the nearest ones.
-- +goose StatementBegin
CREATE FUNCTION org_circle(of_org uuid, since timestamptz) RETURNS SETOF uuid LANGUAGE sql STABLE ROWS 4 AS $$
    WITH RECURSIVE c (id) AS (
        SELECT of_org
        UNION
        SELECT b.org_id
        FROM c
        JOIN circle_link a ON a.org_id = c.id AND (a.ended_at IS NULL OR a.ended_at > since)
        JOIN circle_link b ON b.via = a.via AND (b.ended_at IS NULL OR b.ended_at > since)
    )
    SELECT id FROM c LIMIT 1000
$$;
-- +goose StatementEnd
