-- +goose Up
-- When the containers of an ended lease were gone and its GPUs clean: its claims end then, while its host still uploads what the lease
-- wrote. flush_gb is what of scratch_gb the upload keeps until gone_at. NULL: the claims end with gone_at, as they do for hosts whose
-- agents do not report it. The previous version takes an ended lease without claims for one that is gone.
ALTER TABLE lease ADD COLUMN gpus_free_at timestamptz, ADD COLUMN flush_gb bigint NOT NULL DEFAULT 0;

-- What an upload keeps of a host changes what renting sees of the host; see fleet_change.
CREATE TRIGGER lease_upload_noted AFTER UPDATE OF gone_at, gpus_free_at ON lease FOR EACH ROW
    WHEN (NEW.gpus_free_at IS NOT NULL AND (OLD.gone_at, OLD.gpus_free_at) IS DISTINCT FROM (NEW.gone_at, NEW.gpus_free_at))
    EXECUTE FUNCTION note_host_of_row();

-- +goose Down
DROP TRIGGER lease_upload_noted ON lease;
ALTER TABLE lease DROP COLUMN gpus_free_at, DROP COLUMN flush_gb;
