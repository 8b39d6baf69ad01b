-- +goose Up
-- Which clusters mount which buckets. A bucket is not deleted while one of them lives.
SET LOCAL lock_timeout = '3s';
CREATE TABLE bucket_mount (
    cluster_id  uuid NOT NULL REFERENCES cluster,
    bucket_id   uuid NOT NULL REFERENCES bucket ON DELETE CASCADE,
    mode        text NOT NULL CHECK (mode IN ('rw', 'ro')),
    PRIMARY KEY (cluster_id, bucket_id)
);
CREATE INDEX bucket_mount_bucket ON bucket_mount (bucket_id);

-- Increases with each replacement of the credentials: hosts mount the bucket again when it does.
ALTER TABLE bucket ADD COLUMN version integer NOT NULL DEFAULT 1;

-- Of a lease: the renter has been notified of what could not be uploaded to its buckets.
ALTER TABLE node ADD COLUMN uploads_lost_told boolean NOT NULL DEFAULT false;
