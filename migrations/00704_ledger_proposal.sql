-- +goose Up
-- Money that was given up has an account of its own, and staff move money between the platform's accounts. The constraints keep what
-- they know already, whatever that is.
-- +goose StatementBegin
DO $$
DECLARE
    have text;
BEGIN
    SELECT pg_get_constraintdef(oid) INTO have FROM pg_constraint WHERE conname = 'ledger_account_kind' AND conrelid = 'ledger_account'::regclass;
    have := regexp_replace(have, '\s*NOT VALID\s*$', '');
    have := regexp_replace(have, '^CHECK \((.*)\)$', '\1');
    ALTER TABLE ledger_account DROP CONSTRAINT ledger_account_kind;
    EXECUTE 'ALTER TABLE ledger_account ADD CONSTRAINT ledger_account_kind CHECK (' || have || ' OR kind = ''breakage'') NOT VALID';
    SELECT pg_get_constraintdef(oid) INTO have FROM pg_constraint WHERE conname = 'ledger_tx_kind' AND conrelid = 'ledger_tx'::regclass;
    have := regexp_replace(have, '\s*NOT VALID\s*$', '');
    have := regexp_replace(have, '^CHECK \((.*)\)$', '\1');
    ALTER TABLE ledger_tx DROP CONSTRAINT ledger_tx_kind;
    EXECUTE 'ALTER TABLE ledger_tx ADD CONSTRAINT ledger_tx_kind CHECK (' || have || ' OR kind IN (''breakage'', ''admin_entry'')) NOT VALID';
END $$;
-- +goose StatementEnd

-- An entry between two of the platform's accounts, which one member of the staff proposes and another one approves.
CREATE TABLE ledger_proposal (
    id            uuid PRIMARY KEY,
    debit_kind    text NOT NULL,
    credit_kind   text NOT NULL,
    currency      text NOT NULL,
    amount        bigint NOT NULL CHECK (amount > 0),      -- nano-units
    reason        text NOT NULL CHECK (reason <> ''),
    proposed_by   uuid NOT NULL REFERENCES app_user,
    created_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    state         text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'booked', 'refused')),
    decided_by    uuid REFERENCES app_user,
    decision      text NOT NULL DEFAULT '',                -- the reason of who decided
    decided_at    timestamptz,
    CHECK (debit_kind <> credit_kind),
    CHECK ((state = 'open') = (decided_by IS NULL) AND (state = 'open') = (decided_at IS NULL) AND (state = 'open') = (decision = '')),
    CHECK (state <> 'booked' OR decided_by <> proposed_by)
);
CREATE INDEX ledger_proposal_open ON ledger_proposal (id) WHERE state = 'open';
CREATE TRIGGER ledger_proposal_frozen BEFORE UPDATE ON ledger_proposal FOR EACH ROW
    WHEN (OLD.state <> 'open' OR (OLD.id, OLD.debit_kind, OLD.credit_kind, OLD.currency, OLD.amount, OLD.reason, OLD.proposed_by, OLD.created_at)
                                 IS DISTINCT FROM (NEW.id, NEW.debit_kind, NEW.credit_kind, NEW.currency, NEW.amount, NEW.reason, NEW.proposed_by, NEW.created_at))
    EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_proposal_kept BEFORE DELETE ON ledger_proposal FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER ledger_proposal_no_truncate BEFORE TRUNCATE ON ledger_proposal EXECUTE FUNCTION refuse_change();

-- Such an entry is in the ledger only if its proposal was approved, and moves what was proposed.
-- +goose StatementBegin
CREATE FUNCTION check_admin_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF (SELECT count(*) FROM ledger_transfer t WHERE t.tx_id = NEW.id) <> 1
       OR NOT EXISTS (SELECT FROM ledger_proposal p
                      JOIN ledger_transfer t ON t.tx_id = NEW.id AND t.amount = p.amount AND t.currency = p.currency
                      JOIN ledger_account d ON d.id = t.debit_account_id AND d.kind = p.debit_kind AND d.org_id IS NULL
                      JOIN ledger_account c ON c.id = t.credit_account_id AND c.kind = p.credit_kind AND c.org_id IS NULL
                      WHERE NEW.key = 'admin_entry:' || p.id AND p.state = 'booked') THEN
        RAISE EXCEPTION 'entry % is not what two members of the staff decided', NEW.key USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE CONSTRAINT TRIGGER ledger_tx_decided AFTER INSERT ON ledger_tx DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.kind = 'admin_entry') EXECUTE FUNCTION check_admin_entry();
