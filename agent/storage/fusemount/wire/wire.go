// Package wire is what the agent and a process that mounts something for a lease (muster-mount) say to each other: the
// agent writes a Config to the process's standard input, and reads a State from each connection to the process's
// socket. A process that mounts a volume sends the agent a PacksRequest for each connection to the agent's socket.
package wire

// Config is what a process mounts: a bucket or a volume.
type Config struct {
	Source string `json:"source"` // the name of the mount in the kernel's list of mounts
	Point  string `json:"point"`  // the folder to mount at, which exists
	Cache  string `json:"cache"`  // a folder for this mount alone
	Socket string `json:"socket"` // where it answers with a State
	// CacheBytes bounds what the cache keeps of files that the store has.
	CacheBytes int64 `json:"cache_bytes"`

	Bucket *Bucket `json:"bucket,omitempty"`
	Volume *Volume `json:"volume,omitempty"`
}

// Bucket is a renter's bucket, with the credentials.
type Bucket struct {
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

// Volume is a snapshot of a volume.
type Volume struct {
	// Root is where its root is; nil: the volume is empty.
	Root *Place `json:"root,omitempty"`
	// PackSet is the manifest.PackSet of the packs that the snapshot needs.
	PackSet []byte `json:"pack_set"`
	Key     []byte `json:"key"`   // of the data domain; secret
	Packs   string `json:"packs"` // the agent's socket, where it answers PacksRequests
	// Patience is for how many milliseconds a read waits for a store that does not answer; then it fails.
	PatienceMS int64 `json:"patience_ms"`
}

// Place is where a chunk is, as in agentapi.PackPlace.
type Place struct {
	ID     string `json:"id"`
	Pack   int64  `json:"pack"`
	Offset uint32 `json:"offset"`
	Length uint32 `json:"length"`
	Size   uint32 `json:"size"`
}

// Pack is a signed request to read a pack, as in agentapi.PackURL.
type Pack struct {
	N       int64             `json:"n"`
	Method  string            `json:"method"`
	URL     string            `json:"url"`
	Header  map[string]string `json:"header,omitempty"`
	UntilMS int64             `json:"until_ms"`
	Bytes   int64             `json:"bytes"` // of the whole pack
}

// PacksRequest requests URLs to read packs.
type PacksRequest struct {
	Packs []int64 `json:"packs"`
}

// PacksReply answers each pack, or says why it cannot.
type PacksReply struct {
	Packs []Pack `json:"packs,omitempty"`
	Error string `json:"error,omitempty"`
	// Final: it does not help to send the request again.
	Final bool `json:"final,omitempty"`
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

	// Of a bucket: Files and Bytes wait to be uploaded.
	Files int   `json:"files"`
	Bytes int64 `json:"bytes"`
	// Open: a file is open for writing, or one has been changed and is not in Files yet.
	Open bool `json:"open,omitempty"`
	// Unknown: the process cannot say what it has to upload.
	Unknown bool `json:"unknown,omitempty"`
	// Failing is how often the upload that failed most often has failed; 0: none fails.
	Failing int `json:"failing,omitempty"`
	// Uploading is why uploads fail, for people; "" = they do not.
	Uploading string `json:"uploading,omitempty"`

	// Of a volume: Reading is why reads fail or wait, for people; "" = they do not.
	Reading string `json:"reading,omitempty"`
}
