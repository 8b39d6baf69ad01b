-- +goose Up
-- Fabrics whose subnet manager keeps clusters apart. A host whose operator named a program for that has the isolation
-- 'partition': before a start, its RDMA ports are members of the cluster's partition only. Several organisations have RDMA
-- in a fabric at the same time only while all hosts that lend it are such; otherwise it has one tenant, as before.
-- A server of the version before writes none of this: its hosts are 'sole_tenant', and its claims are of no partition.
ALTER TABLE host
    ADD COLUMN rdma_link text NOT NULL DEFAULT '' CHECK (rdma_link IN ('', 'infiniband', 'roce', 'efa')),
    ADD COLUMN rdma_isolation text NOT NULL DEFAULT 'sole_tenant' CHECK (rdma_isolation IN ('sole_tenant', 'partition'));
ALTER TABLE fabric ADD COLUMN last_pkey integer NOT NULL DEFAULT 0; -- the partition key that was given last
ALTER TABLE fabric_claim
    ADD COLUMN cluster_id uuid, -- null: of a quote, or of a server of the version before
    ADD COLUMN partitioned boolean NOT NULL DEFAULT false; -- other organisations may have RDMA in the fabric meanwhile

-- The partition key of a cluster, without the bit for full members. It stays the cluster's until an hour after its last
-- claim, and keys are given in turn: a host that was cut off, and still has a port in an old partition, shares it with no
-- newer cluster. Keys below 0x2000 are the operator's.
CREATE TABLE fabric_partition (
    fabric_id  uuid NOT NULL REFERENCES fabric,
    pkey       integer NOT NULL CHECK (pkey BETWEEN 8192 AND 32766),
    cluster_id uuid NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (fabric_id, pkey),
    UNIQUE (fabric_id, cluster_id)
);

-- +goose StatementBegin
CREATE FUNCTION fabric_partitioned(fabric uuid) RETURNS boolean LANGUAGE sql STABLE AS $$
    SELECT coalesce(bool_and(rdma_isolation = 'partition'), false)
    FROM host WHERE fabric_id = fabric AND rdma_gbps > 0 AND state <> 'retired'
$$;
-- +goose StatementEnd

-- It replaces fabric_claim_sole. The fabric's row is locked, so that of two transactions which claim it at the same time
-- the later one sees the other's claim.
DROP TRIGGER fabric_claim_sole ON fabric_claim;
DROP FUNCTION fabric_claim_sole;
-- +goose StatementBegin
CREATE FUNCTION fabric_claim_tenant() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    last integer;
BEGIN
    SELECT last_pkey INTO last FROM fabric WHERE id = NEW.fabric_id FOR NO KEY UPDATE;
    IF EXISTS (SELECT FROM fabric_claim WHERE ref = NEW.ref) THEN
        RETURN NEW; -- it is not inserted
    END IF;
    -- A cluster with ranks outside of partitions stays outside.
    NEW.partitioned := fabric_partitioned(NEW.fabric_id)
        AND NOT EXISTS (SELECT FROM fabric_claim WHERE cluster_id = NEW.cluster_id AND NOT partitioned);
    IF EXISTS (
        SELECT FROM fabric_claim f JOIN gpu_claim c ON c.ref = f.ref AND c.ended_at IS NULL
        WHERE f.fabric_id = NEW.fabric_id AND f.org_id <> NEW.org_id AND NOT (f.partitioned AND NEW.partitioned)
          AND (c.expires_at IS NULL OR c.expires_at > clock_timestamp())) THEN
        RAISE unique_violation USING CONSTRAINT = 'fabric_claim_sole',
            MESSAGE = 'another organisation rents the fabric';
    END IF;
    DELETE FROM fabric_claim f
    WHERE f.fabric_id = NEW.fabric_id AND f.ref <> NEW.ref AND f.created_at < clock_timestamp() - interval '1 hour'
      AND NOT EXISTS (SELECT FROM gpu_claim c WHERE c.ref = f.ref AND c.ended_at IS NULL);
    DELETE FROM fabric_partition p
    WHERE p.fabric_id = NEW.fabric_id AND p.cluster_id IS DISTINCT FROM NEW.cluster_id
      AND p.created_at < clock_timestamp() - interval '1 hour'
      AND NOT EXISTS (SELECT FROM fabric_claim f WHERE f.cluster_id = p.cluster_id);
    IF NEW.cluster_id IS NULL OR EXISTS (SELECT FROM fabric_partition WHERE fabric_id = NEW.fabric_id AND cluster_id = NEW.cluster_id) THEN
        IF NEW.cluster_id IS NOT NULL AND NOT NEW.partitioned THEN
            -- The cluster's other ranks are in its partition, and this host cannot join it.
            RAISE unique_violation USING CONSTRAINT = 'fabric_claim_sole', MESSAGE = 'the fabric is no longer partitioned';
        END IF;
        RETURN NEW;
    END IF;
    IF NEW.partitioned THEN
        INSERT INTO fabric_partition (fabric_id, pkey, cluster_id)
        SELECT NEW.fabric_id, k, NEW.cluster_id FROM generate_series(8192, 32766) k
        WHERE NOT EXISTS (SELECT FROM fabric_partition p WHERE p.fabric_id = NEW.fabric_id AND p.pkey = k)
        ORDER BY k <= last, k LIMIT 1
        RETURNING pkey INTO last;
        IF last IS NULL THEN
            RAISE unique_violation USING CONSTRAINT = 'fabric_claim_sole', MESSAGE = 'the fabric has no free partition key';
        END IF;
        UPDATE fabric SET last_pkey = last WHERE id = NEW.fabric_id;
    END IF;
    RETURN NEW;
END $$;
-- +goose StatementEnd
CREATE TRIGGER fabric_claim_tenant BEFORE INSERT ON fabric_claim FOR EACH ROW EXECUTE FUNCTION fabric_claim_tenant();

-- What a host lends was not among what the views of the fleet watch.
DROP TRIGGER host_noted ON host;
CREATE TRIGGER host_noted AFTER UPDATE ON host FOR EACH ROW
    WHEN ((OLD.name, OLD.region, OLD.fabric_id, OLD.state, OLD.multi_node, OLD.needs_full_report, OLD.blocked, OLD.cpu_cores,
           OLD.ram_mb, OLD.disk_gb, OLD.disk_limited, OLD.scratch_gb, OLD.runtimes, OLD.driver, OLD.cuda_max, OLD.rdma_gbps, OLD.rdma_rails)
          IS DISTINCT FROM
          (NEW.name, NEW.region, NEW.fabric_id, NEW.state, NEW.multi_node, NEW.needs_full_report, NEW.blocked, NEW.cpu_cores,
           NEW.ram_mb, NEW.disk_gb, NEW.disk_limited, NEW.scratch_gb, NEW.runtimes, NEW.driver, NEW.cuda_max, NEW.rdma_gbps, NEW.rdma_rails))
    EXECUTE FUNCTION note_host();
-- The isolation that an offer names depends on all hosts of its fabric.
-- +goose StatementBegin
CREATE FUNCTION note_hosts_of_rail() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO fleet_change (host_id) SELECT id FROM host WHERE fabric_id IN (OLD.fabric_id, NEW.fabric_id);
    RETURN NULL;
END $$;
-- +goose StatementEnd
CREATE TRIGGER host_rail_noted AFTER UPDATE ON host FOR EACH ROW
    WHEN ((OLD.rdma_isolation, OLD.rdma_gbps > 0, OLD.fabric_id, OLD.state = 'retired')
          IS DISTINCT FROM (NEW.rdma_isolation, NEW.rdma_gbps > 0, NEW.fabric_id, NEW.state = 'retired'))
    EXECUTE FUNCTION note_hosts_of_rail();
