// Package datafaults lets a store be slow, full, away, or lie, while volumes are written, committed, restored, scrubbed
// and collected.
//
// The store is a real S3 store behind s3test's faults; the server's use cases run on PostgreSQL, and the host's side on
// an XFS file system.
//
// What always holds:
//   - People see what is wrong while it is wrong, in words, without a URL or a key.
//   - What was committed before can be read whole afterwards, and nothing that cannot be read is committed.
//   - Once the store is well, what was under way goes on, and nothing is left that still says otherwise.
//   - Memory and goroutines stay bounded meanwhile.
//
// Lazy mounts, buckets and copies have their own tests with the same faults: agent/storage/lazy, agent/storage/bucket,
// and internal/data/volume. The package has tests only.
package datafaults
