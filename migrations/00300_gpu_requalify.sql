-- +goose Up
-- The last request of an operator to reset a GPU, check it and put it back into service. Its host gets the request with its desired state
-- until it reports the result.
CREATE TABLE gpu_requalify (
    gpu_id       uuid PRIMARY KEY REFERENCES gpu,
    host_id      uuid NOT NULL REFERENCES host,
    number       bigint NOT NULL DEFAULT 1,      -- rises with each request of the GPU
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,                    -- NULL: the host has not reported a result
    failure      text NOT NULL DEFAULT ''        -- why it could not be done; '' is not, or not yet
);
CREATE INDEX gpu_requalify_waiting ON gpu_requalify (host_id) WHERE finished_at IS NULL;
