package base

import (
	"context"
	"slices"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// FindCluster returns the cluster with the given id or name: the only one of that name that has not ended, else the
// newest.
func FindCluster(ctx context.Context, c *client.Client, arg string) (id.Cluster, error) {
	if strings.HasPrefix(arg, "cl_") {
		cl, err := id.Parse[id.Cluster](arg)
		if err != nil {
			return cl, fault.New(fault.NotFound, "there is no such cluster")
		}
		return cl, nil
	}
	named, err := clustersNamed(ctx, c, arg)
	if err != nil {
		return id.Cluster{}, err
	}
	live := onlyLive(named)
	switch {
	case len(live) > 1:
		return id.Cluster{}, fault.New(fault.Invalid, "%d clusters are called %s: use an id, see muster cluster "+
			"list", len(live), arg)
	case len(live) == 1:
		return live[0].ID, nil
	case len(named) > 0:
		return named[0].ID, nil
	}
	return id.Cluster{}, fault.New(fault.NotFound, "no cluster is called %s", arg)
}

// LiveClusters returns the clusters with a name that have not ended, newest first.
func LiveClusters(ctx context.Context, c *client.Client, name string) ([]client.Cluster, error) {
	named, err := clustersNamed(ctx, c, name)
	return onlyLive(named), err
}

func onlyLive(all []client.Cluster) []client.Cluster {
	return slices.DeleteFunc(slices.Clone(all), func(v client.Cluster) bool { return v.State.Ended() })
}

func clustersNamed(ctx context.Context, c *client.Client, name string) ([]client.Cluster, error) {
	all, err := client.All(ctx, func(ctx context.Context, p client.PageOf) (client.Page[client.Cluster], error) {
		return c.Clusters(ctx, "", p)
	})
	return slices.DeleteFunc(all, func(v client.Cluster) bool { return v.Name != name }), err
}

// FindHost returns the host with the given id or name.
func FindHost(ctx context.Context, c *client.Client, arg string) (id.Host, error) {
	if strings.HasPrefix(arg, "host_") {
		h, err := id.Parse[id.Host](arg)
		if err != nil {
			return h, fault.New(fault.NotFound, "there is no such host")
		}
		return h, nil
	}
	all, err := client.All(ctx, c.Hosts)
	if err != nil {
		return id.Host{}, err
	}
	for _, h := range all {
		if h.Name == arg {
			return h.ID, nil
		}
	}
	return id.Host{}, fault.New(fault.NotFound, "no host is called %s", arg)
}
