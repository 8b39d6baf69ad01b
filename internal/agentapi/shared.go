package agentapi

// SharedFS is a shared file system that an operator declares for a host: a mount that several hosts have.
type SharedFS struct {
	Name string `json:"name"`
	// Marker identifies the file system: random text in its marker file, which all hosts that mount it read. "" if the
	// file system cannot be used.
	Marker  string `json:"marker,omitempty"`
	Type    string `json:"type,omitempty"`    // the kernel's name of it: nfs, ceph, fuse, ext4
	SizeGB  int64  `json:"size_gb,omitempty"` // of 10⁹ bytes
	Problem string `json:"problem,omitempty"` // why it cannot be used, for the operator; at most 500 bytes
}

// SharedMount is a shared file system of a lease: the folder of the renter's organisation there. It stays when the
// lease ends.
type SharedMount struct {
	// Path is where the workload finds it. The rules are those of Mount.Path.
	Path   string `json:"path"`
	Name   string `json:"name"`
	Marker string `json:"marker"`
	Folder string `json:"folder"` // "shd_…"
	Mode   string `json:"mode"`   // MountRW, MountRO
	// QuotaBytes is how much the organisation may store there. Hosts measure it; see SharedUse.
	QuotaBytes int64 `json:"quota_bytes"`
}

// SharedErase is an order to delete the folder of an organisation. It is repeated until SharedUse.Erased.
type SharedErase struct {
	Name   string `json:"name"`
	Marker string `json:"marker"`
	Folder string `json:"folder"`
}

// SharedUse is what a host has measured of a folder.
type SharedUse struct {
	Folder string `json:"folder"`
	Bytes  int64  `json:"bytes"` // that its files take on the disk
	// Closed: it is over its quota, and cannot be written on this host any more.
	Closed bool `json:"closed,omitempty"`
	// Erased: nothing of it was left when the host looked.
	Erased bool `json:"erased,omitempty"`
	// Problem is why it could not be measured, closed or erased, for people; at most 500 bytes.
	Problem string `json:"problem,omitempty"`
}

// MaxShared is how many shared file systems a host can have, and how many folders it reports at once.
const (
	MaxShared    = 16
	MaxSharedUse = 256
)
