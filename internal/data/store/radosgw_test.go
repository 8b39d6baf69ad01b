//go:build ceph

package store_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/data/store"
	"github.com/musterhq/muster/internal/testing/s3test"
)

// Ceph's gateway does not check the SHA-256 of a body whose request is signed in the address (observed with 16.2.15).
// The probe says so, and the gateway does all that a store must do when packs pass through the server.
func TestRadosgw(t *testing.T) {
	g := s3test.Start(t)
	s := open(t, g.Config)
	var lack *store.Lack
	err := s.Probe(t.Context())
	if !errors.As(err, &lack) || !strings.Contains(err.Error(), "refuse a body that was not signed") {
		t.Fatalf("the probe: %v", err)
	}
	store.CheckStore(t, throughServer(t, s))
}
