-- +goose Up
-- A lost dispute of a payment, and an operator that earned from its payer between the payment and two days after the loss: by then what the
-- payment paid for is booked. reviewed_at is when the operator's review took the loss over; until then its earnings are held back
-- as while the dispute was open.
CREATE TABLE lost_dispute (
    dispute_id   text NOT NULL REFERENCES dispute,
    host_org_id  uuid NOT NULL REFERENCES org,
    reviewed_at  timestamptz,
    PRIMARY KEY (dispute_id, host_org_id)
);
CREATE INDEX lost_dispute_open ON lost_dispute (host_org_id) WHERE reviewed_at IS NULL;
CREATE INDEX lost_dispute_host ON lost_dispute (host_org_id);

-- The operators that earned from a payer since a moment.
-- +goose StatementBegin
CREATE FUNCTION operators_paid_by(payer_org uuid, of_currency text, since_at timestamptz, until_at timestamptz) RETURNS SETOF uuid LANGUAGE sql STABLE AS $$
    SELECT DISTINCT h.host_org_id FROM operator_earning_hour h
    WHERE h.payer_org_id = payer_org AND h.currency = of_currency AND h.host_org_id <> payer_org
      AND h.hour >= date_trunc('hour', since_at, 'UTC') AND h.last_at >= since_at AND h.hour <= until_at
$$;

-- Whatever version of the server closes the dispute.
CREATE FUNCTION queue_lost_dispute() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO lost_dispute (dispute_id, host_org_id)
    SELECT NEW.id, o FROM operators_paid_by(NEW.org_id, NEW.currency, NEW.paid_at, clock_timestamp()) o
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER dispute_lost_queued AFTER INSERT OR UPDATE OF state ON dispute FOR EACH ROW
    WHEN (NEW.state = 'lost' AND NEW.kind = 'dispute') EXECUTE FUNCTION queue_lost_dispute();

-- Losses that a review has taken over already are reviewed; the next pass of maturing looks at the others, however old they are.
INSERT INTO lost_dispute (dispute_id, host_org_id, reviewed_at)
SELECT d.id, o, CASE WHEN EXISTS (SELECT FROM payout_review v WHERE v.host_org_id = o AND v.renter_org_id = d.org_id AND v.currency = d.currency
                                    AND v.reasons @> '{lost_dispute}') THEN clock_timestamp() END
FROM dispute d CROSS JOIN LATERAL operators_paid_by(d.org_id, d.currency, d.paid_at, coalesce(d.closed_at, clock_timestamp()) + interval '2 days') o
WHERE d.state = 'lost' AND d.kind = 'dispute'
ON CONFLICT DO NOTHING;

-- +goose Down
DROP TRIGGER dispute_lost_queued ON dispute;
DROP FUNCTION queue_lost_dispute();
DROP FUNCTION operators_paid_by(uuid, text, timestamptz, timestamptz);
DROP TABLE lost_dispute;
