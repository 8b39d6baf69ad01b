-- +goose Up
-- What the GPU sent over NVLink to the next GPU of its model while each of the host's GPUs of the model did the same, in Gbit/s, and when;
-- NULL = not measured. It was host_rdma.local_gbps of hosts with RDMA, which remains NCCL's figure.
ALTER TABLE gpu ADD COLUMN busbw_nvlink double precision, ADD COLUMN busbw_nvlink_at timestamptz;

-- +goose Down
ALTER TABLE gpu DROP COLUMN busbw_nvlink, DROP COLUMN busbw_nvlink_at;
