package cluster_test

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// When a node is over and not all of its buckets was uploaded, the renter sees in the timeline what is lost, and
// receives one notice, however often the host reports it.
func TestTheRenterSeesWhatWasNotUploaded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldConfig{hosts: 2, gpus: 1})
	c := w.runUp(spec(2, 1))
	h := w.hostOf(c, 1)
	for range 3 {
		h.mu.Lock()
		s := h.report()
		for i := range s.Leases {
			s.Leases[i].NotUploaded = []agentapi.NotUploaded{
				{Bucket: "bkt_a", Name: "results", Detail: "the time for it is over",
					Uploads: agentapi.Uploads{Files: 2, Bytes: 7000}},
				{Bucket: "bkt_b", Name: "logs", Detail: "the host was restarted"},
			}
		}
		err := h.send(w.ctx, 0, s)
		h.mu.Unlock()
		w.must(err)
	}
	kinds, text := w.events(c)
	if n := strings.Count(strings.Join(kinds, " "), "not_uploaded"); n != 1 ||
		!strings.Contains(text, "Rank 1: not everything was uploaded") ||
		!strings.Contains(text, "bucket results: 2 files, 7000 bytes (the time for it is over)") ||
		!strings.Contains(text, "bucket logs: it is not known how much (the host was restarted)") {
		t.Errorf("%d events\n%s", n, text)
	}
	var notices int
	if err := w.d.Pool.QueryRow(w.ctx, "SELECT count(*) FROM notice WHERE org_id = $1 AND "+
		"dedupe_key LIKE 'not_uploaded:%'", w.renter.Org).Scan(&notices); err != nil || notices != 1 {
		t.Errorf("%d notices, %v", notices, err)
	}
}
