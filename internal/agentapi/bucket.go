package agentapi

// BucketMount is a renter's bucket of a lease: a part of an S3-compatible store that the host mounts with the renter's
// credentials. What is written is in the store once it is uploaded, shortly after a file was closed. After the
// workload's end the host uploads the rest, for BucketFlushMaxS seconds at most, before it reports the lease Gone.
type BucketMount struct {
	// Path is where the workload finds it. The rules are those of Mount.Path; no two mounts of a lease are inside of each
	// other.
	Path string `json:"path"`
	// Bucket is its id, "bkt_…". Name is for messages to people.
	Bucket string `json:"bucket"`
	Name   string `json:"name"`
	Mode   string `json:"mode"` // MountRW, MountRO
	// CacheBytes is how much of the host's scratch may hold what is not uploaded yet, and copies of what is.
	CacheBytes int64 `json:"cache_bytes"`

	Endpoint string `json:"endpoint"` // https://host[:port]
	Region   string `json:"region"`
	Store    string `json:"store"`            // the bucket's name in the store
	Prefix   string `json:"prefix,omitempty"` // of all keys, without slashes at its ends

	Credentials BucketCredentials `json:"credentials,omitzero"`
}

// BucketCredentials are an access key of a renter. Keep Secret in memory only: never on disk, in logs, arguments,
// environments or labels.
type BucketCredentials struct {
	// Version increases when the renter replaces the credentials: mount the bucket again with the new ones.
	Version     int    `json:"version"`
	AccessKeyID string `json:"access_key_id"`
	Secret      string `json:"secret"`
}

// CacheRoom returns how many bytes of a host's scratch the cache of a bucket takes: what it may hold, and what the file
// system itself needs.
func CacheRoom(cacheBytes int64) int64 { return max(MinVolumeRoom, cacheBytes+cacheBytes/10) }

// BucketFlushMaxS is how many seconds after a lease's end its buckets may be uploaded.
const BucketFlushMaxS = 1800

// Uploads is what of a lease's buckets is not uploaded yet.
type Uploads struct {
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Problem is why uploads fail, for people; "" = they do not.
	Problem string `json:"problem,omitempty"`
}

// NotUploaded is what of a bucket was lost with the end of a lease: it could not be uploaded in time.
type NotUploaded struct {
	Bucket string `json:"bucket"` // bkt_…
	Name   string `json:"name"`
	Uploads
	Detail string `json:"detail,omitempty"` // for people
}
