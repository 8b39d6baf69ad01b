package agent

import (
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"time"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/snapd"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
)

// storage is what runs keep on the host's disks: their scratches, volumes, and the caches of their mounts.
type storage struct {
	client  *snapd.Client  // of the process for volumes
	scratch *scratch.Store // nil: the host offers none
	mounts  *mounts
	selves  *selves // what workloads request of their own nodes
	network *network
	runs    *runs
	caps    firewall.Caps
	bootMS  func() int64
	now     func() time.Time
	log     *slog.Logger
}

func newStorage(cfg Config, rs *runs, n *network, server volume.Server) *storage {
	client := snapd.NewClient(snapd.Config{
		Dir: filepath.Join(cfg.StateDir, "snapd"), Command: cfg.SnapdCommand, Server: server, Log: cfg.Log,
		Changed: rs.kickAll,
	})
	return &storage{
		client: client, scratch: cfg.Scratch, mounts: newMounts(cfg, rs, n, server),
		selves:  &selves{runs: rs, volumes: client, log: cfg.Log, listeners: map[agentapi.LeaseRef]net.Listener{}},
		network: n, runs: rs, caps: cfg.Caps, bootMS: cfg.BootMS, now: cfg.Now, log: cfg.Log,
	}
}

// binds returns what a workload's container mounts of its volumes and buckets.
func (s *storage) binds(ref agentapi.LeaseRef, v view) (out []container.Bind) {
	for _, m := range v.spec().Mounts {
		out = append(out, container.Bind{
			Source: scratch.Data(v.rec.Volumes[m.Volume]), Target: m.Path, ReadOnly: m.Mode == agentapi.MountRO,
		})
	}
	return slices.Concat(out, s.mounts.bucketBinds(ref, v), s.mounts.lazyBinds(ref, v))
}
