// Package wire is what the agent and a process that mounts a bucket (muster-mount) say to each other: the agent writes
// a Config to the process's standard input, and reads a State from each connection to the process's socket.
package wire

// Config is what a process mounts.
type Config struct {
	Source string `json:"source"` // the name of the mount in the kernel's list of mounts
	Point  string `json:"point"`  // the folder to mount at, which exists
	Cache  string `json:"cache"`  // a folder for this mount alone, for what is not uploaded yet
	Socket string `json:"socket"` // where it answers with a State
	// CacheBytes bounds what the cache keeps of files that are uploaded.
	CacheBytes int64 `json:"cache_bytes"`

	Endpoint string `json:"endpoint"` // https://host[:port]
	Region   string `json:"region"`
	Bucket   string `json:"bucket"`
	Prefix   string `json:"prefix"` // of all keys, without slashes at its ends; may be empty
	ReadOnly bool   `json:"read_only"`
	// AnyAddress also accepts http, and addresses that are not on the internet.
	AnyAddress bool `json:"any_address"`

	AccessKeyID string `json:"access_key_id"`
	Secret      string `json:"secret"`
}

// Stages of a process.
const (
	Starting = "starting" // it has not reached the store yet; Problem is why, if it tried
	Ready    = "ready"    // it is mounted
	Refused  = "refused"  // the store does not accept the bucket or its credentials, for Problem
)

// State is how a process is. It has no secrets.
type State struct {
	Stage   string `json:"stage"`
	Problem string `json:"problem,omitempty"` // for people
	// Files and Bytes wait to be uploaded.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Open: a file is open for writing, or one has been changed and is not in Files yet.
	Open bool `json:"open,omitempty"`
	// Unknown: the process cannot say what it has to upload.
	Unknown bool `json:"unknown,omitempty"`
	// Failing is how often the upload that failed most often has failed; 0: none fails.
	Failing int `json:"failing,omitempty"`
}
