package base

import (
	"context"
	"strconv"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
)

// FindRank returns the cluster and the rank that CLUSTER or CLUSTER.RANK means, where CLUSTER is an id or a name.
func FindRank(ctx context.Context, c *client.Client, arg string) (id.Cluster, int, error) {
	if cl, err := id.Parse[id.Cluster](arg); err == nil {
		return cl, 0, nil
	}
	if stem, rank, ok := cutRank(arg); ok {
		if cl, err := id.Parse[id.Cluster](stem); err == nil {
			return cl, rank, nil
		}
	}
	all, err := allClusters(ctx, c)
	if err != nil {
		return id.Cluster{}, 0, err
	}
	return rankNamed(all, arg)
}

// rankNamed reads a name among all clusters, newest first. Names may end as ranks do: llama-3.1 is the cluster of this
// name while there is one, and rank 1 of llama-3 only if there is none. It is an error if the cluster of the whole name
// has ended and the other one has not, because either could be meant.
func rankNamed(all []client.Cluster, arg string) (id.Cluster, int, error) {
	stem, rank, ok := cutRank(arg)
	whole := withName(all, arg)
	if !ok || len(onlyLive(whole)) > 0 {
		cl, err := clusterNamed(all, arg)
		return cl, 0, err
	}
	part := withName(all, stem)
	switch {
	case len(whole) > 0 && len(onlyLive(part)) > 0:
		return id.Cluster{}, 0, fault.New(fault.Conflict, "%s is the name of a cluster that has ended, and could be rank %d "+
			"of %s: for the rank, write %s with --node %d; for the cluster that has ended, its id", arg, rank, stem, stem, rank)
	case len(whole) > 0 || len(part) == 0:
		cl, err := clusterNamed(all, arg)
		return cl, 0, err
	}
	cl, err := clusterNamed(all, stem)
	return cl, rank, err
}

// cutRank splits CLUSTER.RANK. A rank is written as Go prints it: not as 01 or +1.
func cutRank(arg string) (stem string, rank int, ok bool) {
	i := strings.LastIndexByte(arg, '.')
	if i <= 0 {
		return arg, 0, false
	}
	rank, err := strconv.Atoi(arg[i+1:])
	if err != nil || rank < 0 || strconv.Itoa(rank) != arg[i+1:] {
		return arg, 0, false
	}
	return arg[:i], rank, true
}
