package base

import (
	"context"
	"slices"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// FindVolume finds a volume by its id or its name.
func FindVolume(ctx context.Context, c *client.Client, arg string) (id.Volume, error) {
	if v, err := id.Parse[id.Volume](arg); err == nil {
		return v, nil
	}
	all, err := c.Volumes.List(ctx)
	if err != nil {
		return id.Volume{}, err
	}
	for _, v := range all.Items {
		if v.Name == arg {
			return v.ID, nil
		}
	}
	return id.Volume{}, fault.New(fault.NotFound, "volume not found")
}

// FindShared finds a shared file system by its id or its name.
func FindShared(ctx context.Context, c *client.Client, arg string) (id.SharedFS, error) {
	if b, err := id.Parse[id.SharedFS](arg); err == nil {
		return b, nil
	}
	all, err := c.Shared.List(ctx)
	if err != nil {
		return id.SharedFS{}, err
	}
	names := make([]string, len(all.Items))
	for i, b := range all.Items {
		if names[i] = b.Name; b.Name == arg {
			return b.ID, nil
		}
	}
	return id.SharedFS{}, fault.New(fault.NotFound, "no shared file system is called %s%s", arg, DidYouMean(arg, names))
}

// FindBucket finds a bucket by its id or its name.
func FindBucket(ctx context.Context, c *client.Client, arg string) (id.Bucket, error) {
	if b, err := id.Parse[id.Bucket](arg); err == nil {
		return b, nil
	}
	all, err := c.Buckets.List(ctx)
	if err != nil {
		return id.Bucket{}, err
	}
	names := make([]string, len(all.Items))
	for i, b := range all.Items {
		if names[i] = b.Name; b.Name == arg {
			return b.ID, nil
		}
	}
	return id.Bucket{}, fault.New(fault.NotFound, "no bucket is called %s%s", arg, DidYouMean(arg, names))
}

// FindCluster returns the cluster with the given id or name: the only one of that name that has not ended, else the
// newest. Names that look like an id could be given once, and still find their cluster.
func FindCluster(ctx context.Context, c *client.Client, arg string) (id.Cluster, error) {
	if cl, err := id.Parse[id.Cluster](arg); err == nil {
		return cl, nil
	}
	all, err := allClusters(ctx, c)
	if err != nil {
		return id.Cluster{}, err
	}
	return clusterNamed(all, arg)
}

// clusterNamed returns the cluster of a name among all clusters, newest first.
func clusterNamed(all []client.Cluster, arg string) (id.Cluster, error) {
	named := withName(all, arg)
	live := onlyLive(named)
	switch {
	case len(live) > 1:
		return id.Cluster{}, fault.New(fault.Invalid, "%d clusters are called %s: use an id, see muster cluster "+
			"list", len(live), arg)
	case len(live) == 1:
		return live[0].ID, nil
	case len(named) > 0:
		return named[0].ID, nil
	case strings.HasPrefix(arg, "cl_"):
		return id.Cluster{}, fault.New(fault.NotFound, "cluster not found")
	}
	names := make([]string, len(all))
	for i, v := range all {
		names[i] = v.Name
	}
	return id.Cluster{}, fault.New(fault.NotFound, "no cluster is called %s%s", arg, DidYouMean(arg, names))
}

// ClustersNamed returns the clusters with a name, newest first: those that have not ended, and all.
func ClustersNamed(ctx context.Context, c *client.Client, name string) (live, all []client.Cluster, err error) {
	all, err = allClusters(ctx, c)
	all = withName(all, name)
	return onlyLive(all), all, err
}

func onlyLive(all []client.Cluster) []client.Cluster {
	return slices.DeleteFunc(slices.Clone(all), func(v client.Cluster) bool { return v.State.Ended() })
}

func allClusters(ctx context.Context, c *client.Client) ([]client.Cluster, error) {
	return client.All(ctx, c.Clusters.List, client.ClustersQuery{})
}

func withName(all []client.Cluster, name string) []client.Cluster {
	return slices.DeleteFunc(slices.Clone(all), func(v client.Cluster) bool { return v.Name != name })
}

// FindHost returns the host with the given id or name.
func FindHost(ctx context.Context, c *client.Client, arg string) (id.Host, error) {
	if h, err := id.Parse[id.Host](arg); err == nil {
		return h, nil
	}
	all, err := client.All(ctx, c.Hosts.List, client.HostsQuery{})
	if err != nil {
		return id.Host{}, err
	}
	names := make([]string, len(all))
	for i, h := range all {
		if names[i] = h.Name; h.Name == arg {
			return h.ID, nil
		}
	}
	if strings.HasPrefix(arg, "host_") {
		return id.Host{}, fault.New(fault.NotFound, "host not found")
	}
	return id.Host{}, fault.New(fault.NotFound, "no host is called %s%s", arg, DidYouMean(arg, names))
}
