-- +goose Up
-- Transfers move the balances, and nothing else does. Accounts are found by their ids whatever the planner guesses of the number of new
-- transfers. The name sorts before ledger_transfer_earnings: that trigger writes under the locks of balances.
-- +goose StatementBegin
CREATE FUNCTION move_ledger_balances() RETURNS trigger LANGUAGE plpgsql SET enable_hashjoin = off SET enable_mergejoin = off AS $$
BEGIN
    IF EXISTS (SELECT FROM new_transfer t LEFT JOIN ledger_tx x ON x.id = t.tx_id
               WHERE x.xmin IS DISTINCT FROM pg_current_xact_id()::xid) THEN
        RAISE EXCEPTION 'a transfer of an entry of another transaction is refused: history never changes' USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    -- A floor is where the account's credit is used up and only what is reserved is left. Of an account that is below that (its
    -- credit was lowered, or more was reserved than it has) it is where the account stands: it rises with it.
    UPDATE ledger_balance b
    SET amount = b.amount + u.delta,
        floor = CASE WHEN b.floor IS NULL THEN NULL ELSE least(b.reserved - b.credit, greatest(b.floor, b.amount + u.delta)) END,
        moved = u.delta + CASE WHEN b.moved_in = pg_current_xact_id() THEN b.moved ELSE 0 END,
        moved_in = pg_current_xact_id()
    FROM (SELECT e.account_id, sum(e.amount)::bigint AS delta
          FROM (SELECT t.credit_account_id AS account_id, t.amount FROM new_transfer t
                UNION ALL SELECT t.debit_account_id, -t.amount FROM new_transfer t) e
          GROUP BY e.account_id) u
    WHERE b.account_id = u.account_id AND u.delta <> 0;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- The version before inserts transfers and then moves the balances: by then they are moved, and its update changes nothing.
-- +goose StatementBegin
CREATE FUNCTION guard_ledger_balance() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.amount <> OLD.amount AND OLD.moved_in = pg_current_xact_id() AND NEW.amount - OLD.amount = OLD.moved
       AND (NEW.account_id, NEW.floor IS NULL, NEW.moved, NEW.moved_in) IS NOT DISTINCT FROM (OLD.account_id, OLD.floor IS NULL, OLD.moved, OLD.moved_in) THEN
        NEW.amount := OLD.amount;
        NEW.floor := OLD.floor;
        NEW.moved := 0;
        RETURN NEW;
    END IF;
    RAISE EXCEPTION '% on % is refused: only transfers move a balance', TG_OP, TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END $$;
-- +goose StatementEnd

-- +goose StatementBegin
CREATE FUNCTION check_ledger_entry() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM ledger_transfer t WHERE t.tx_id = NEW.id) THEN
        RAISE EXCEPTION 'entry % has no transfers', NEW.key USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- What an account may lend is in the terms of an organisation that pays by invoice, and what is reserved is claimed by its disputes.
-- +goose StatementBegin
CREATE FUNCTION ledger_credit_limit(of_account uuid) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce((SELECT p.credit_limit FROM ledger_account a JOIN postpaid_org p ON p.org_id = a.owner AND p.currency = a.currency
                     WHERE a.id = of_account AND a.kind = 'renter_wallet' AND p.state = 'on'), 0)
$$;
CREATE FUNCTION ledger_claims(of_account uuid) RETURNS bigint LANGUAGE sql STABLE AS $$
    SELECT coalesce(sum(CASE WHEN d.state = 'open' THEN greatest(0, d.amount - CASE WHEN d.topup_id IS NULL THEN 0 ELSE d.tax END - d.held)
                             ELSE 0 END + d.debt), 0)::bigint
    FROM ledger_account a JOIN dispute d ON d.org_id = a.org_id AND d.currency = a.currency
    WHERE a.id = of_account AND d.kind = 'dispute' AND (d.state = 'open' OR d.debt > 0)
$$;
CREATE FUNCTION check_ledger_backing() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM ledger_balance b WHERE b.account_id = NEW.account_id
               AND (b.credit > 0 AND b.credit > ledger_credit_limit(b.account_id) OR b.reserved > 0 AND b.reserved > ledger_claims(b.account_id))) THEN
        RAISE EXCEPTION 'account % has credit that no terms lend, or a reserve that no dispute claims', NEW.account_id
            USING ERRCODE = 'integrity_constraint_violation';
    END IF;
    RETURN NULL;
END $$;
-- +goose StatementEnd

-- From here on the triggers move. The lock waits for transactions that have inserted transfers and not moved the balances yet.
LOCK TABLE ledger_transfer IN SHARE ROW EXCLUSIVE MODE;
CREATE TRIGGER ledger_transfer_balances AFTER INSERT ON ledger_transfer REFERENCING NEW TABLE AS new_transfer
    FOR EACH STATEMENT EXECUTE FUNCTION move_ledger_balances();
CREATE TRIGGER ledger_balance_guard BEFORE UPDATE ON ledger_balance FOR EACH ROW
    WHEN (pg_trigger_depth() = 0 AND (OLD.account_id, OLD.amount, OLD.floor IS NULL, OLD.moved, OLD.moved_in)
                                     IS DISTINCT FROM (NEW.account_id, NEW.amount, NEW.floor IS NULL, NEW.moved, NEW.moved_in))
    EXECUTE FUNCTION guard_ledger_balance();
CREATE TRIGGER ledger_balance_begins BEFORE INSERT ON ledger_balance FOR EACH ROW
    WHEN (NEW.amount <> 0 OR NEW.credit <> 0 OR NEW.reserved <> 0 OR NEW.floor <> 0 OR NEW.moved <> 0)
    EXECUTE FUNCTION guard_ledger_balance();
CREATE CONSTRAINT TRIGGER ledger_balance_backed AFTER UPDATE OF credit, reserved ON ledger_balance DEFERRABLE INITIALLY DEFERRED FOR EACH ROW
    WHEN (NEW.credit > OLD.credit OR NEW.reserved > OLD.reserved) EXECUTE FUNCTION check_ledger_backing();
CREATE CONSTRAINT TRIGGER ledger_tx_moves AFTER INSERT ON ledger_tx DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION check_ledger_entry();
