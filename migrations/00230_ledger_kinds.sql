-- +goose Up
-- The kinds of accounts and of entries that the platform knows. 00231 checks the rows that are there. A new kind needs a migration
-- that replaces the constraint before the code writes it. What Stripe charges or pays out is booked as stripe_ and Stripe's own name.
ALTER TABLE ledger_account ADD CONSTRAINT ledger_account_kind CHECK (kind IN (
    'stripe_clearing', 'renter_wallet', 'renter_hold', 'renter_receivable', 'host_pending', 'host_payable', 'platform_fee',
    'goodwill_credit', 'suspense', 'transfers_in_flight', 'earnings_withheld', 'refunds_in_flight', 'dispute_hold', 'bad_debt',
    'stripe_fees', 'bank', 'tax_payable', 'promo', 'host_bond', 'bond_hold', 'standby_relief')) NOT VALID;
ALTER TABLE ledger_tx ADD CONSTRAINT ledger_tx_kind CHECK (kind IN (
    'authorise', 'usage', 'hold_release', 'compensation', 'service_credit', 'standby', 'relief',
    'bond_deposit', 'bond_withdraw', 'bond_retain', 'bond_reserve', 'bond_release',
    'topup', 'topup_mismatch', 'promo', 'refund', 'refund_paid', 'refund_returned', 'tax_remitted',
    'dispute', 'dispute_repaid', 'dispute_funds', 'dispute_won', 'dispute_lost', 'dispute_paid', 'dispute_writeoff',
    'dispute_recovered', 'invoice_paid', 'invoice_refund', 'invoice_refund_returned', 'invoice_writeoff', 'invoice_writeoff_void',
    'postpaid', 'postpaid_rest', 'tax_invoice', 'tax_invoice_void',
    'payout', 'payout_paid', 'payout_failed', 'payout_reversed', 'payout_mature', 'payout_refuse')
    OR kind ~ '^stripe_[a-z0-9_]+$') NOT VALID;
