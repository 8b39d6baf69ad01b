-- +goose Up
-- Rows that are updated again and again get room on their own page. An update that stays on its page touches no index, and
-- the page is cleaned when it is read next.
ALTER TABLE lease_meter SET (fillfactor = 50);
ALTER TABLE node_status SET (fillfactor = 50);
ALTER TABLE host_status SET (fillfactor = 50);
ALTER TABLE ledger_balance SET (fillfactor = 50);
