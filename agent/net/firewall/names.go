package firewall

import (
	"context"
	"os"

	"github.com/musterhq/muster/agent/net/netns"
	"github.com/musterhq/muster/internal/fault"
)

// namesTable is in a guest's own network namespace, which its workload cannot change: it has no rights there. Docker
// answers names at 127.0.0.11 in each namespace, whatever the egress: those of the host's other containers, which have
// the ids of other leases, and those that the host itself resolves. Workloads have name servers of their own in
// /etc/resolv.conf. The chain is before Docker's, which sends the queries to another port.
const namesTable = `table inet muster_names {
	chain output {
		type filter hook output priority -300; policy accept;
		ip daddr 127.0.0.11 reject
	}
}
`

// RefuseNames refuses Docker's name server in a guest's network namespace, the file at a path. It may be called again.
func RefuseNames(ctx context.Context, path string) error {
	ns, err := os.Open(path)
	if err == nil {
		defer ns.Close()
		err = netns.Inside(ns, func() error { return load(ctx, replaced("muster_names", namesTable)) })
	}
	if err != nil {
		return fault.New(fault.Unavailable, "Docker's name server cannot be refused to the node: %v", err)
	}
	return nil
}
