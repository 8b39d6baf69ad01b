package cluster

import (
	"testing"

	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
)

func TestOfferQuery(t *testing.T) {
	t.Parallel()
	offer := id.New[id.Offer]().String()
	for name, want := range map[string]string{
		offer:    "id = " + offer,
		"attic":  "host_name = attic",
		"a b=c'": `host_name = "a b=c'"`,
	} {
		q, err := query.Parse(offerQuery(name))
		if err != nil || q.String() != want {
			t.Errorf("%s: %s (%v), want %s", name, q, err, want)
		}
	}
}
