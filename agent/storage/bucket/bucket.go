// Package bucket mounts renters' buckets for leases, by processes that package fusemount keeps.
//
// What always holds:
//   - Credentials are in memory only, here and in the processes.
//   - What is not uploaded yet lies in the run's cache folder. A process that died is started again with the same
//     folder.
package bucket

import (
	"log/slog"

	"github.com/musterhq/muster/agent/storage/fusemount"
	"github.com/musterhq/muster/agent/storage/fusemount/wire"
	"github.com/musterhq/muster/internal/agentapi"
)

// Config is what the mounts of a host need.
type Config struct {
	Dir     string // of all mounts; not below a folder that is removed recursively
	Program string // muster-mount
	// AnyAddress also accepts http, and addresses that are not on the internet.
	AnyAddress bool
	Confine    func(ref agentapi.LeaseRef, pid int) error // see fusemount.Config
	Log        *slog.Logger
	Changed    func() // is called when a State has changed; nil: nothing is
}

// Mounts are the buckets of a host. Safe for concurrent use.
type Mounts struct {
	*fusemount.Mounts
	cfg Config
}

// Wanted is a bucket that should be mounted.
type Wanted struct {
	Ref   agentapi.LeaseRef
	Mount agentapi.BucketMount // with its credentials, if they are known
	Cache string               // a folder of the run's own
	PID   int                  // of the workload's first process; 0: none runs
	// Ended: nothing of the workload runs any more, so nothing more is written.
	Ended bool
}

// State is how a bucket's mount is.
type State struct {
	Ready bool // it is mounted, in the workload's container too if one runs
	// Refused is why it cannot be mounted, by the store's word; Problem is why it is not mounted yet. For people.
	Refused string
	Problem string
	ByHost  bool // the problem is this host's own
	// Files and Bytes wait to be uploaded; Failing is how often the upload that failed most often has failed, and
	// Uploading why, for people; "" = none fails.
	Files     int
	Bytes     int64
	Failing   int
	Uploading string
	// Uploaded: after Ended, all that was written is in the store.
	Uploaded bool
	// Starts is how often the process was started by this agent.
	Starts int
}

// New returns the buckets of a host. Nothing is mounted until Want.
func New(cfg Config) *Mounts {
	return &Mounts{cfg: cfg, Mounts: fusemount.New(fusemount.Config{
		Dir: cfg.Dir, Program: cfg.Program, Confine: cfg.Confine, Log: cfg.Log, Changed: cfg.Changed,
	})}
}

// Want mounts a bucket and keeps it mounted until Detach. It may be called again with another PID or new credentials;
// one without credentials keeps those that are known.
func (m *Mounts) Want(w Wanted) {
	b := w.Mount
	out := fusemount.Wanted{Ref: w.Ref, ID: b.Bucket, Version: b.Credentials.Version, PID: w.PID, Ended: w.Ended}
	if b.Credentials.Secret != "" {
		out.Config = &wire.Config{Cache: w.Cache, CacheBytes: b.CacheBytes, Bucket: &wire.Bucket{
			Endpoint: b.Endpoint, Region: b.Region, Bucket: b.Store, Prefix: b.Prefix,
			ReadOnly: b.Mode == agentapi.MountRO, AnyAddress: m.cfg.AnyAddress,
			AccessKeyID: b.Credentials.AccessKeyID, Secret: b.Credentials.Secret,
		}}
	}
	m.Mounts.Want(out)
}

// State returns how a bucket of a run is mounted.
func (m *Mounts) State(ref agentapi.LeaseRef, bucket string) State {
	s := m.Mounts.State(ref, bucket)
	return State{
		Ready: s.Ready, Refused: s.Refused, Problem: s.Problem, ByHost: s.ByHost, Files: s.Process.Files,
		Bytes: s.Process.Bytes, Failing: s.Process.Failing, Uploading: s.Process.Uploading, Uploaded: s.Idle,
		Starts: s.Starts,
	}
}
