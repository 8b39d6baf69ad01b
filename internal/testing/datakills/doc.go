// Package datakills kills the processes that keep volumes, at random moments, and reads back what was committed.
//
// The processes are the real ones: the process for volumes (agent/storage/snapd) with its agent's side, on an XFS file
// system whose writer never rests, and a server with the use cases of internal/data/volume on PostgreSQL and a store.
// The server also collects packs all the time, and snapshots are deleted, so that every commit races with the
// collection.
//
// What always holds:
//   - A committed snapshot reads back in full, every file by its hash, until it is deleted.
//   - It shows the writer's files as they were at one moment, or it is called per_file, and each file is then.
//   - After any kill the same snapshot goes on under its id, and is committed once.
//
// The package has no code of its own.
package datakills
