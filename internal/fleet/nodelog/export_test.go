package nodelog

import (
	"context"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// SetRunTime changes how long a host may take to send what a run has printed.
func (r *Reader) SetRunTime(d time.Duration) { r.runTime = d }

// MaxRank is how much of a rank one answer holds, in bytes.
const MaxRank = maxRank

// GatherPerOrg and FollowPerOrg are how many requests of one org run at the same time.
const (
	GatherPerOrg = gatherPerOrg
	FollowPerOrg = followPerOrg
)

// TakeFollow takes a place among the org's open streams, as Follow does.
func (r *Reader) TakeFollow(org id.Org) (leave func(), err error) {
	return r.following.Take(context.Background(), org)
}
