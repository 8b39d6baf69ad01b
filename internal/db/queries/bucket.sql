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
UPDATE bucket SET access_key_id = @access_key_id, secret = @secret, version = version + 1, checked_at = clock_timestamp(), problem = ''
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

-- name: LockBuckets :many
-- For a rent: the organisation's own only, which are not deleted until it commits.
SELECT id, name, mode FROM bucket WHERE id = ANY(@ids::uuid[]) AND org_id = @org_id ORDER BY id FOR KEY SHARE;

-- name: BucketsByID :many
SELECT id, name, mode FROM bucket WHERE id = ANY(@ids::uuid[]) AND org_id = @org_id;

-- name: InsertBucketMount :exec
INSERT INTO bucket_mount (cluster_id, bucket_id, mode) VALUES (@cluster_id, @bucket_id, @mode);

-- name: BucketsOfHost :many
-- The buckets of a host's leases, with their sealed secrets.
SELECT DISTINCT ON (m.cluster_id, m.bucket_id) m.cluster_id, m.bucket_id, m.mode, b.name, b.endpoint, b.region, b.bucket, b.prefix,
       b.access_key_id, b.secret, b.version
FROM lease l
JOIN bucket_mount m ON m.cluster_id = l.cluster_id
JOIN bucket b ON b.id = m.bucket_id
WHERE l.host_id = @host_id AND l.ended_at IS NULL;

-- name: ClustersOfBuckets :many
-- The clusters of an organisation that have not ended and mount buckets.
SELECT m.bucket_id, m.mode, c.id AS cluster_id, c.name
FROM bucket b
JOIN bucket_mount m ON m.bucket_id = b.id
JOIN cluster c ON c.id = m.cluster_id
WHERE b.org_id = @org_id AND c.ended_at IS NULL
ORDER BY m.bucket_id, c.created_at;

-- name: LockBucket :one
SELECT id FROM bucket WHERE id = @id AND org_id = @org_id FOR UPDATE;

-- name: HostsOfBucket :many
-- Where clusters that mount a bucket run.
SELECT DISTINCT l.host_id FROM bucket_mount m JOIN lease l ON l.cluster_id = m.cluster_id AND l.ended_at IS NULL
WHERE m.bucket_id = @bucket_id;
