package agent

import (
	"context"
	"errors"
	"path/filepath"

	"github.com/musterhq/muster/agent/net/firewall"
	"github.com/musterhq/muster/agent/net/overlay"
	"github.com/musterhq/muster/agent/storage/bucket"
	"github.com/musterhq/muster/agent/storage/lazy"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/workload/container"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

// Purge removes everything that the agent of host has put on this machine: containers, scratches with their contents,
// overlays, network, firewall rules. store is the scratch folder that the agent would use now, nil for none: scratches
// in a former folder are found by their leases' records. The agent must not run. Its identity, journal and kept logs
// stay: what was proven is still owed. Purge goes on after an error and returns all errors; purging twice is no error.
func Purge(ctx context.Context, host id.Host, stateDir string, engine *container.Engine, store *scratch.Store) error {
	var errs []error
	all, err := engine.List(ctx)
	errs = append(errs, err)
	// Workloads are removed before guests: a workload uses its guest's network namespace.
	for _, role := range []container.Role{container.Work, container.Guest} {
		for _, c := range all {
			if c.Role == role {
				errs = append(errs, engine.Remove(ctx, c.Ref, c.Role))
			}
		}
	}
	// Mounts before the caches that their processes use.
	mounts := bucket.New(bucket.Config{Dir: bucketDir(host)})
	lazies := lazy.New(lazy.Config{Dir: lazyDir(host)})
	none := func(agentapi.LeaseRef) bool { return false }
	errs = append(errs, mounts.Sweep(ctx, none), lazies.Sweep(ctx, none),
		firewall.SweepMounts(ctx, container.Host8(host), func(string) bool { return false }),
		purgeScratch(stateDir, store), purgeShared(host))
	folders, err := filepath.Glob(filepath.Join(disk{dir: stateDir}.leases(), "*"))
	errs = append(errs, err)
	for _, f := range folders {
		errs = append(errs, overlay.Stop(ctx, f))
	}
	errs = append(errs, engine.RemoveNetwork(ctx), firewall.Remove(ctx, container.Host8(host)))
	return errors.Join(errs...)
}
