package agent

import (
	"testing"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
)

// A start whose buckets or volumes cannot be mounted ends as the host's failure if the host cannot mount anything, and
// as the bucket's or the volume's otherwise.
func TestWhoseFaultAMissingMountIs(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		do     action
		byHost bool
		after  time.Duration
		want   string
	}{
		{actMountBuckets, true, bucketPatience - time.Second, ""},
		{actMountBuckets, true, bucketPatience, agentapi.ReasonRuntimeFailed},
		{actMountLazies, true, bucketPatience, agentapi.ReasonRuntimeFailed},
		{actMountBuckets, false, bucketPatience, agentapi.ReasonBucketUnusable},
		{actMountLazies, false, bucketPatience, ""},
		{actMountLazies, false, restorePatience, agentapi.ReasonRestoreFailed},
	} {
		got := final(tc.do, notMounted("it is not mounted", tc.byHost), 100, tc.after)
		if got == nil && tc.want != "" || got != nil && (got.Reason != tc.want || got.Detail != "it is not mounted") {
			t.Errorf("%s, by the host: %t, after %s: %+v, want %q", tc.do, tc.byHost, tc.after, got, tc.want)
		}
	}
}
