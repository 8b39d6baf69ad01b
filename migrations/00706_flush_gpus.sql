-- +goose Up
-- What the disk that an upload keeps (flush_gb) is worth in thousandths of GPUs: its part of the host's scratch, of the host's GPUs.
-- Others cannot rent that many GPUs with scratch meanwhile, so it counts as if the lease held them.
ALTER TABLE lease ADD COLUMN flush_gpu_thousandths bigint NOT NULL DEFAULT 0;

-- +goose Down
ALTER TABLE lease DROP COLUMN flush_gpu_thousandths;
