-- +goose Up
-- What clusters measured with NCCL over the RDMA ports of hosts, before they started.
SET LOCAL lock_timeout = '3s';
ALTER TABLE host ADD COLUMN rdma_nccl boolean NOT NULL DEFAULT false; -- it can measure

CREATE TABLE host_rdma (
    host_id         uuid PRIMARY KEY REFERENCES host,
    -- The best of a week, as one slow partner does not show that the host is slow: all-reduce over so many hosts.
    busbw_gbps      double precision NOT NULL,
    busbw_at        timestamptz NOT NULL,
    busbw_hosts     integer NOT NULL,
    local_gbps      double precision NOT NULL,    -- the same between the host's own GPUs; 0: it has one
    nccl            text NOT NULL,                -- its version
    -- The latest measurement: a cluster on the same hosts does not measure again for a day.
    last_cluster_id uuid NOT NULL,
    last_hosts      integer NOT NULL,
    last_at         timestamptz NOT NULL
);
CREATE TRIGGER host_rdma_inserted AFTER INSERT ON host_rdma FOR EACH ROW EXECUTE FUNCTION note_host_of_row();
CREATE TRIGGER host_rdma_updated AFTER UPDATE ON host_rdma FOR EACH ROW
    WHEN ((OLD.busbw_gbps, OLD.local_gbps) IS DISTINCT FROM (NEW.busbw_gbps, NEW.local_gbps)) EXECUTE FUNCTION note_host_of_row();
