package cluster

import (
	"fmt"
	"time"

	"github.com/musterhq/muster/internal/db/dbq"
)

// newlyCapped reports whether a host's data cap is used up and the renter was not told of it for this month.
func newlyCapped(until, told *time.Time, now time.Time) bool {
	return until != nil && now.Before(*until) && (told == nil || !told.Equal(*until))
}

// addCapEvent writes into the timeline that the data cap of a node's host is used up: nothing of the renter's changes
// by it, but its operator may now want the machine.
func (x *lockedCluster) addCapEvent(n *node) {
	rank, month := n.Rank, n.capped.UTC().AddDate(0, 0, -1).Format("January")
	x.events = append(x.events, dbq.InsertClusterEventParams{
		ClusterID: x.row.ID,
		At:        x.now,
		Kind:      "host_data_cap",
		Rank:      &rank,
		Title:     fmt.Sprintf("Rank %d: its host has used up its line's data cap for %s", rank, month),
		Detail: "The node goes on at full speed and is charged as before: data costs you nothing. The host takes no new " +
			"leases, and its operator may want it back: " +
			"you are told when, and get the last hour back where that is said less than an hour before. Keep checkpoints " +
			"outside the node; to move now, release the cluster and rent elsewhere.",
		Data: []byte("{}"),
	})
}
