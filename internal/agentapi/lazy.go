package agentapi

// LazyMount is a volume of a lease that is read on demand: its last snapshot, as of the session's begin, is mounted at
// once, read-only. The agent opens a session with mode MountRO, requests URLs of packs (VolumeRead) whenever reads need
// them, until the end of the workload, and sends a VolumeReport at least every 15 minutes. The session's snapshot stays
// in the store until the session is closed, the lease is Gone, or VolumeFlushMaxS seconds after the lease's end.
type LazyMount struct {
	// Path is where the workload finds it. The rules are those of Mount.Path.
	Path string `json:"path"`
	// Volume is its id, "vol_…". Name is for messages to people.
	Volume string `json:"volume"`
	Name   string `json:"name"`
	// CacheBytes is how much of the host's scratch may hold what was read.
	CacheBytes int64 `json:"cache_bytes"`
	// Key is the key of the data domain. Keep it in memory only, as Mount.Key. Secret.
	Key []byte `json:"key"`
}
