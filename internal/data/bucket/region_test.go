//go:build !ceph

package bucket

import (
	"testing"

	"github.com/musterhq/muster/internal/idem"
)

// A region in which the store is not is named. Ceph's gateway takes any region.
func TestCreate_WrongRegion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	n := w.new("results")
	n.Target.Region = "eu-central-1"
	_, _, err := w.b.Create(t.Context(), w.who, n, idem.Request{})
	wantField(t, "wrong region", err, "region", "not in eu-central-1")
}
