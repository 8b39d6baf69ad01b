package statement_test

import (
	"testing"

	"github.com/musterhq/muster/internal/billing/statement"
)

// Pages that show many clusters or all of a host's life read no segments of long or old ones; the sums are the same.
func TestLongLivesAreSummedWithoutSegments(t *testing.T) {
	t.Parallel()
	r := newRental(t)
	r.open(t)
	r.prove(t, 0, 2_000, ranMS)
	r.prove(t, 1, 1_500, ranMS-4_200)
	r.end(t)
	s := statement.New(r.DB, "EUR", statement.Party{})
	u, short, err := s.ShortUsage(t.Context(), r.cluster, 100)
	if err != nil || !short || len(u.Segments) < 2 {
		t.Fatalf("%d segments, short %t, %v", len(u.Segments), short, err)
	}
	for most, want := range map[int]bool{len(u.Segments): true, 1: false} {
		if got, short, err := s.ShortUsage(t.Context(), r.cluster, most); err != nil || short != want ||
			(len(got.Segments) > 0) != want {
			t.Errorf("at most %d: %d segments, short %t, %v", most, len(got.Segments), short, err)
		}
	}
	before, err := s.HostEarnings(t.Context(), r.operator, r.host)
	if err != nil || len(before.Days) == 0 {
		t.Fatalf("%+v, %v", before, err)
	}
	if _, err := r.DB.Pool.Exec(t.Context(), "UPDATE lease SET ended_at = ended_at - interval '33 days'"); err != nil {
		t.Fatal(err)
	}
	after, err := s.HostEarnings(t.Context(), r.operator, r.host)
	if err != nil || after.Total != before.Total || after.Pending != 0 || len(after.Days) != 0 || len(after.Leases) != 2 ||
		after.Leases[0].Seconds != before.Leases[0].Seconds || after.Leases[0].Earned != before.Leases[0].Earned {
		t.Errorf("%+v became %+v, %v", before, after, err)
	}
}
