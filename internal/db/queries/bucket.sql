-- Buckets of renters' own stores.

-- name: LockBucketsOfOrg :exec
-- Serialises creation, so that the limit per organisation holds.
SELECT pg_advisory_xact_lock(7274033, hashtext(@org::text));

-- name: CountBuckets :one
SELECT count(*) FROM bucket WHERE org_id = @org_id;

-- name: InsertBucket :many
-- No row: the name is used.
INSERT INTO bucket (id, org_id, name, endpoint, region, bucket, prefix, mode, access_key_id, secret, created_by)
VALUES (@id, @org_id, @name, @endpoint, @region, @bucket, @prefix, @mode, @access_key_id, @secret, @created_by)
ON CONFLICT (org_id, name) DO NOTHING
RETURNING *;

-- name: ListBuckets :many
SELECT * FROM bucket WHERE org_id = @org_id ORDER BY name;

-- name: GetBucket :one
SELECT * FROM bucket WHERE id = @id AND org_id = @org_id;

-- name: SetBucketCredentials :one
-- New credentials are stored after a check.
UPDATE bucket SET access_key_id = @access_key_id, secret = @secret, checked_at = clock_timestamp(), problem = ''
WHERE id = @id AND org_id = @org_id RETURNING *;

-- name: SetBucketChecked :one
-- Stores what a check found, unless the credentials that it used were replaced meanwhile.
UPDATE bucket SET checked_at = clock_timestamp(), problem = @problem
WHERE id = @id AND org_id = @org_id AND secret = @secret RETURNING *;

-- name: DeleteBucket :execrows
DELETE FROM bucket WHERE id = @id AND org_id = @org_id;

-- name: ResealableBuckets :many
-- scan: in order
SELECT id, secret FROM bucket WHERE id > @after ORDER BY id LIMIT @max_rows;

-- name: ResealBucket :execrows
UPDATE bucket SET secret = @fresh WHERE id = @id AND secret = @stale;

-- name: EraseBucketsOfOrg :exec
DELETE FROM bucket WHERE org_id = @org_id;
