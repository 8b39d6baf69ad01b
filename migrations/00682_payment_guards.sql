-- +goose Up
-- What the ledger's entries of payments, refunds, payouts and disputes name never changes: whose it is, how much, and in what
-- order it may end. Times may be set. refuse_state says which step was refused.
-- +goose StatementBegin
CREATE FUNCTION refuse_state() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% % is %: it does not become %', TG_TABLE_NAME, OLD.id, OLD.state, NEW.state USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- +goose StatementEnd

-- A payment that succeeded has succeeded for good. One that was given up may succeed after all.
CREATE TRIGGER topup_frozen BEFORE UPDATE ON topup FOR EACH ROW
    WHEN ((OLD.id, OLD.org_id, OLD.amount, OLD.currency, OLD.tax, OLD.tax_ppm, OLD.tax_name, OLD.tax_reason, OLD.tax_country, OLD.automatic)
          IS DISTINCT FROM (NEW.id, NEW.org_id, NEW.amount, NEW.currency, NEW.tax, NEW.tax_ppm, NEW.tax_name, NEW.tax_reason, NEW.tax_country, NEW.automatic)
          OR OLD.state = 'succeeded' AND OLD.payment_intent_id IS DISTINCT FROM NEW.payment_intent_id)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER topup_states BEFORE UPDATE OF state ON topup FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state = 'succeeded' OR NEW.state = 'pending')) EXECUTE FUNCTION refuse_state();
CREATE TRIGGER topup_kept BEFORE DELETE ON topup FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER topup_no_truncate BEFORE TRUNCATE ON topup EXECUTE FUNCTION refuse_change();

-- A refund that was paid may be sent back by the bank; one that failed has failed for good, for the wallet has its money again.
CREATE TRIGGER refund_frozen BEFORE UPDATE ON refund FOR EACH ROW
    WHEN ((OLD.id, OLD.org_id, OLD.topup_id, OLD.amount, OLD.tax, OLD.currency) IS DISTINCT FROM (NEW.id, NEW.org_id, NEW.topup_id, NEW.amount, NEW.tax, NEW.currency))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER refund_states BEFORE UPDATE OF state ON refund FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state = 'failed' OR NEW.state = 'pending')) EXECUTE FUNCTION refuse_state();
CREATE TRIGGER refund_kept BEFORE DELETE ON refund FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER refund_no_truncate BEFORE TRUNCATE ON refund EXECUTE FUNCTION refuse_change();

-- Two refunds of one payment wait for each other here: their callers lock the payment first, as this does.
-- +goose StatementBegin
CREATE FUNCTION bound_refunds() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    t record;
    r record;
BEGIN
    SELECT org_id, currency, amount, tax INTO t FROM topup WHERE id = NEW.topup_id FOR NO KEY UPDATE;
    SELECT sum(amount) AS amount, sum(tax) AS tax INTO r FROM refund WHERE topup_id = NEW.topup_id AND state <> 'failed';
    IF (t.org_id, t.currency) IS DISTINCT FROM (NEW.org_id, NEW.currency) OR r.amount > t.amount OR r.tax > t.tax THEN
        RAISE EXCEPTION 'refund % is refused: % and % of tax would go back of a payment of % and %', NEW.id, r.amount, r.tax, t.amount, t.tax
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER refund_bounded AFTER INSERT ON refund FOR EACH ROW WHEN (NEW.state <> 'failed') EXECUTE FUNCTION bound_refunds();

-- A payout that was given up may be found at Stripe after all; one that was paid stays paid. What came back of it only grows, and is
-- the sum of its reversals whenever a transaction commits.
CREATE TRIGGER payout_frozen BEFORE UPDATE ON payout FOR EACH ROW
    WHEN ((OLD.id, OLD.org_id, OLD.stripe_account, OLD.amount, OLD.currency) IS DISTINCT FROM (NEW.id, NEW.org_id, NEW.stripe_account, NEW.amount, NEW.currency)
          OR OLD.stripe_transfer IS NOT NULL AND OLD.stripe_transfer IS DISTINCT FROM NEW.stripe_transfer OR NEW.reversed < OLD.reversed)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER payout_states BEFORE UPDATE OF state ON payout FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND (OLD.state = 'paid' OR NEW.state = 'pending')) EXECUTE FUNCTION refuse_state();
CREATE TRIGGER payout_kept BEFORE DELETE ON payout FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER payout_no_truncate BEFORE TRUNCATE ON payout EXECUTE FUNCTION refuse_change();
CREATE TRIGGER payout_reversal_immutable BEFORE UPDATE OR DELETE ON payout_reversal FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER payout_reversal_no_truncate BEFORE TRUNCATE ON payout_reversal EXECUTE FUNCTION refuse_change();
-- +goose StatementBegin
CREATE FUNCTION check_payout_reversed() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    p uuid := CASE TG_TABLE_NAME WHEN 'payout' THEN to_jsonb(NEW) ->> 'id' ELSE to_jsonb(NEW) ->> 'payout_id' END;
BEGIN
    IF EXISTS (SELECT FROM payout o WHERE o.id = p AND o.reversed <> (SELECT coalesce(sum(r.amount), 0) FROM payout_reversal r WHERE r.payout_id = p)) THEN
        RAISE EXCEPTION 'what came back of payout % is not the sum of its reversals', p USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER payout_reversed_sum AFTER UPDATE OF reversed ON payout DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION check_payout_reversed();
CREATE CONSTRAINT TRIGGER payout_reversal_sum AFTER INSERT ON payout_reversal DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION check_payout_reversed();

-- A dispute is decided once; a refund made at Stripe may still fail after an administrator let the hosts have their earnings. What is set
-- aside changes while the dispute is open, and what a lost one cost only falls once it is set.
CREATE TRIGGER dispute_frozen BEFORE UPDATE ON dispute FOR EACH ROW
    WHEN ((OLD.id, OLD.org_id, OLD.topup_id, OLD.invoice_id, OLD.kind, OLD.amount, OLD.currency)
          IS DISTINCT FROM (NEW.id, NEW.org_id, NEW.topup_id, NEW.invoice_id, NEW.kind, NEW.amount, NEW.currency)
          OR OLD.state <> 'open' AND (OLD.held, OLD.held_bond) IS DISTINCT FROM (NEW.held, NEW.held_bond)
          OR OLD.debt > 0 AND NEW.debt > OLD.debt)
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER dispute_states BEFORE UPDATE OF state ON dispute FOR EACH ROW
    WHEN (OLD.state <> NEW.state AND NOT (NEW.kind = 'dispute' AND OLD.state = 'open' AND NEW.state IN ('won', 'lost')
                                          OR NEW.kind = 'refund' AND OLD.state IN ('open', 'released') AND NEW.state IN ('released', 'returned')))
    EXECUTE FUNCTION refuse_state();
CREATE TRIGGER dispute_kept BEFORE DELETE ON dispute FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER dispute_no_truncate BEFORE TRUNCATE ON dispute EXECUTE FUNCTION refuse_change();
