package cluster

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/bucket"
	"github.com/musterhq/muster/internal/data/volume"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fleet/market"
)

// mounts returns what a host needs to know of a cluster's volumes. Only here and in ending are the keys of data domains
// decrypted for hosts. With an error the mounts whose keys do not open have none.
func (hs *Hosts) mounts(cl dbq.Cluster, rows []dbq.MountsOfHostRow) (out []agentapi.Mount, lazy []agentapi.LazyMount,
	err error) {
	var spec market.Spec
	if err := json.Unmarshal(cl.Spec, &spec); err != nil {
		return nil, nil, fmt.Errorf("read the spec of %s: %w", cl.ID, err)
	}
	var failed []error
	for _, m := range spec.Mounts {
		for _, r := range rows {
			if r.ClusterID != cl.ID || r.VolumeID != m.Volume {
				continue
			}
			key, err := volume.OpenKey(hs.cfg.Box, r.DomainID, r.KeySealed)
			if err != nil {
				failed = append(failed, fmt.Errorf("key of %s: %w", m.Volume, err))
			}
			if m.Lazy {
				lazy = append(lazy, agentapi.LazyMount{
					Path: m.Path, Volume: m.Volume.String(), Name: r.Name, CacheBytes: m.CacheGB * 1e9, Key: key,
				})
				continue
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
	return out, lazy, errors.Join(failed...)
}

// ending returns the keys of volumes that leases wrote, by lease: the rows are in this order. A key that does not open
// is left out.
func (hs *Hosts) ending(rows []dbq.EndingMountsOfHostRow) (out []agentapi.EndingLease) {
	for _, r := range rows {
		key, err := volume.OpenKey(hs.cfg.Box, r.DomainID, r.KeySealed)
		if err != nil {
			hs.log.Error("the key of a volume does not open", "volume", r.VolumeID, "err", err)
			continue
		}
		ref := agentapi.LeaseRef{Lease: r.LeaseID.String(), Epoch: int(r.Epoch)}
		if len(out) == 0 || out[len(out)-1].LeaseRef != ref {
			out = append(out, agentapi.EndingLease{LeaseRef: ref})
		}
		l := &out[len(out)-1]
		l.Keys = append(l.Keys, agentapi.VolumeKey{Volume: r.VolumeID.String(), Key: key})
	}
	return out
}

// buckets returns what a host needs to know of a cluster's buckets. Only here are their credentials decrypted for
// hosts. With an error the buckets whose credentials do not open have none.
func (hs *Hosts) buckets(cl dbq.Cluster, rows []dbq.BucketsOfHostRow) (out []agentapi.BucketMount, err error) {
	var spec market.Spec
	if err := json.Unmarshal(cl.Spec, &spec); err != nil {
		return nil, fmt.Errorf("read the spec of %s: %w", cl.ID, err)
	}
	var failed []error
	for _, m := range spec.Mounts {
		for _, r := range rows {
			if r.ClusterID != cl.ID || r.BucketID != m.Bucket {
				continue
			}
			secret, err := bucket.OpenSecret(hs.cfg.Box, m.Bucket, r.Secret)
			if err != nil {
				failed = append(failed, fmt.Errorf("secret of %s: %w", m.Bucket, err))
			}
			out = append(out, agentapi.BucketMount{
				Path: m.Path, Bucket: m.Bucket.String(), Name: r.Name, Mode: m.Mode, CacheBytes: m.CacheGB * 1e9,
				Endpoint: r.Endpoint, Region: r.Region, Store: r.Bucket, Prefix: r.Prefix,
				Credentials: agentapi.BucketCredentials{Version: int(r.Version), AccessKeyID: r.AccessKeyID, Secret: secret},
			})
		}
	}
	return out, errors.Join(failed...)
}

// shared returns what a host needs to know of a cluster's shared file systems.
func shared(cl dbq.Cluster, rows []dbq.SharedOfHostRow) (out []agentapi.SharedMount, err error) {
	var spec market.Spec
	if err := json.Unmarshal(cl.Spec, &spec); err != nil {
		return nil, fmt.Errorf("read the spec of %s: %w", cl.ID, err)
	}
	for _, m := range spec.Mounts {
		for _, r := range rows {
			if m.Shared == "" || r.ClusterID != cl.ID || r.Name != m.Shared {
				continue
			}
			out = append(out, agentapi.SharedMount{
				Path: m.Path, Name: r.Name, Marker: r.Marker, Folder: r.FolderID.String(), Mode: r.Mode,
				QuotaBytes: r.QuotaGb * 1e9,
			})
		}
	}
	return out, nil
}
