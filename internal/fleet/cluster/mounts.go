package cluster

import (
	"encoding/json"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/market"
)

// claimsOf returns the volumes that a spec mounts.
func claimsOf(s market.Spec) []volume.Mount {
	var out []volume.Mount
	for i, m := range s.Mounts {
		out = append(out, volume.Mount{Volume: m.Volume, Mode: m.Mode, At: fmt.Sprintf("mounts[%d].volume", i)})
	}
	return out
}

// mounts returns what a host needs to know of a cluster's volumes. Only here are the keys of data domains decrypted for
// hosts.
func (c *Clusters) mounts(cl dbq.Cluster, rows []dbq.MountsOfHostRow) (out []agentapi.Mount, err error) {
	var spec market.Spec
	if err := json.Unmarshal(cl.Spec, &spec); err != nil {
		return nil, fmt.Errorf("read the spec of %s: %w", cl.ID, err)
	}
	for _, m := range spec.Mounts {
		for _, r := range rows {
			if r.ClusterID != cl.ID || r.VolumeID != m.Volume {
				continue
			}
			key, err := volume.OpenKey(c.cfg.Box, r.DomainID, r.KeySealed)
			if err != nil {
				return nil, fmt.Errorf("key of %s: %w", m.Volume, err)
			}
			mount := agentapi.Mount{
				Path: m.Path, Volume: m.Volume.String(), Name: r.Name, Mode: m.Mode, SizeLimit: r.SizeLimit, Pause: m.Pause,
				Domain: r.DomainID.String(), Key: key,
			}
			if m.Mode != agentapi.MountRO {
				mount.Snapshot = agentapi.SnapshotPolicy(m.Snapshot)
				mount.SnapshotNow = r.WantedID.String()
			}
			out = append(out, mount)
		}
	}
	return out, nil
}
