-- +goose Up
-- An account whose object has ended, with nothing in it: the hold of a settled cluster. Sums of what an org has leave it out,
-- so that they do not grow with all that the org ever rented. Its entries stay where they are.
ALTER TABLE ledger_account ADD COLUMN retired_at timestamptz;

-- Money that moves into a retired account brings it back, whoever moves it.
-- +goose StatementBegin
CREATE FUNCTION revive_ledger_account() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE ledger_account SET retired_at = NULL WHERE id = NEW.account_id AND retired_at IS NOT NULL;
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER ledger_balance_revives AFTER UPDATE OF amount ON ledger_balance FOR EACH ROW
    WHEN (OLD.amount = 0 AND NEW.amount <> 0) EXECUTE FUNCTION revive_ledger_account();

-- What a budget counts never falls below zero: the cap would be exceeded by as much.
UPDATE budget SET committed = 0 WHERE committed < 0;
ALTER TABLE budget ADD CONSTRAINT budget_committed_check CHECK (committed >= 0) NOT VALID;
