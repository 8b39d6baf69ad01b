-- +goose Up
-- Rows of a cluster's life always have their parents. New rows are checked from here on; 00231 checks those that are there.
-- The tables are locked in the order in which a rental writes them, so that no writer and this file wait for each other.
LOCK TABLE cluster, node, lease IN SHARE ROW EXCLUSIVE MODE;

ALTER TABLE lease ADD CONSTRAINT lease_cluster FOREIGN KEY (cluster_id) REFERENCES cluster NOT VALID;
ALTER TABLE lease ADD CONSTRAINT lease_node FOREIGN KEY (node_id) REFERENCES node NOT VALID;
-- A node and its lease name each other: the node is written first, so its lease is looked for at the commit.
ALTER TABLE node ADD CONSTRAINT node_current_lease FOREIGN KEY (lease_id) REFERENCES lease DEFERRABLE INITIALLY DEFERRED NOT VALID;

ALTER TABLE cluster_window ADD CONSTRAINT cluster_window_cluster FOREIGN KEY (cluster_id) REFERENCES cluster NOT VALID;
ALTER TABLE rank_gap ADD CONSTRAINT rank_gap_lease FOREIGN KEY (lease_id) REFERENCES lease NOT VALID;
ALTER TABLE deaf_span ADD CONSTRAINT deaf_span_lease FOREIGN KEY (lease_id) REFERENCES lease NOT VALID;
ALTER TABLE gang_strike ADD CONSTRAINT gang_strike_cluster FOREIGN KEY (cluster_id) REFERENCES cluster NOT VALID;
ALTER TABLE gang_strike ADD CONSTRAINT gang_strike_against FOREIGN KEY (against_org) REFERENCES org NOT VALID;
ALTER TABLE lease_bond ADD CONSTRAINT lease_bond_of_cluster FOREIGN KEY (cluster_id) REFERENCES cluster NOT VALID;
ALTER TABLE standby ADD CONSTRAINT standby_of_cluster FOREIGN KEY (cluster_id) REFERENCES cluster NOT VALID;
ALTER TABLE standby_relief ADD CONSTRAINT standby_relief_of_cluster FOREIGN KEY (cluster_id) REFERENCES cluster NOT VALID;
ALTER TABLE service_credit ADD CONSTRAINT service_credit_cluster FOREIGN KEY (cluster_id) REFERENCES cluster NOT VALID;
ALTER TABLE node_replacement ADD CONSTRAINT node_replacement_lost_lease FOREIGN KEY (lost_lease) REFERENCES lease NOT VALID;
