-- +goose Up
-- Scratch: what the nodes' own file systems on a host's fast disk may take together, and what each lease has of it, in GB of
-- 10^9 bytes. 0: none. A server of the version before writes neither, which is none.
ALTER TABLE host ADD COLUMN scratch_gb bigint NOT NULL DEFAULT 0 CHECK (scratch_gb >= 0);
ALTER TABLE lease ADD COLUMN scratch_gb bigint NOT NULL DEFAULT 0 CHECK (scratch_gb >= 0);

DROP TRIGGER host_noted ON host;
CREATE TRIGGER host_noted AFTER UPDATE ON host FOR EACH ROW
    WHEN ((OLD.name, OLD.region, OLD.fabric_id, OLD.state, OLD.multi_node, OLD.needs_full_report, OLD.blocked, OLD.cpu_cores,
           OLD.ram_mb, OLD.disk_gb, OLD.disk_limited, OLD.scratch_gb, OLD.runtimes, OLD.driver, OLD.cuda_max)
          IS DISTINCT FROM
          (NEW.name, NEW.region, NEW.fabric_id, NEW.state, NEW.multi_node, NEW.needs_full_report, NEW.blocked, NEW.cpu_cores,
           NEW.ram_mb, NEW.disk_gb, NEW.disk_limited, NEW.scratch_gb, NEW.runtimes, NEW.driver, NEW.cuda_max))
    EXECUTE FUNCTION note_host();
