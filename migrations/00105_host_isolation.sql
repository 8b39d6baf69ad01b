-- +goose Up
-- Whether a host holds nodes to their disk_gb, and the OCI runtimes that workloads can be run with there: both searchable,
-- and what a spec may ask for. Of hosts that are known already the last inventory says the first.
ALTER TABLE host
    ADD COLUMN disk_limited boolean NOT NULL DEFAULT false,
    ADD COLUMN runtimes text[] NOT NULL DEFAULT '{runc}';
UPDATE host SET disk_limited = true
FROM host_inventory i
WHERE i.host_id = host.id AND i.inventory ->> 'disk_limited' = 'true';

DROP TRIGGER host_noted ON host;
CREATE TRIGGER host_noted AFTER UPDATE ON host FOR EACH ROW
    WHEN ((OLD.name, OLD.region, OLD.fabric_id, OLD.state, OLD.multi_node, OLD.needs_full_report, OLD.blocked, OLD.cpu_cores,
           OLD.ram_mb, OLD.disk_gb, OLD.disk_limited, OLD.runtimes, OLD.driver, OLD.cuda_max)
          IS DISTINCT FROM
          (NEW.name, NEW.region, NEW.fabric_id, NEW.state, NEW.multi_node, NEW.needs_full_report, NEW.blocked, NEW.cpu_cores,
           NEW.ram_mb, NEW.disk_gb, NEW.disk_limited, NEW.runtimes, NEW.driver, NEW.cuda_max))
    EXECUTE FUNCTION note_host();
