package store

import (
	"bytes"
	"crypto/sha256"
	"net/http"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// CheckStore is what every store must do.
func CheckStore(t *testing.T, s Store) { t.Helper(); checkStore(t, s) }

// CheckPuts is what a signed PUT of every store must hold to.
func CheckPuts(t *testing.T, s Store) {
	t.Helper()
	key := Key(id.New[id.DataDomain](), 7)
	body := bytes.Repeat([]byte("pack"), 1000)
	put, err := s.SignPut(t.Context(), key, sha256.Sum256(body), int64(len(body)), time.Now().Add(time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	checkRefusals(t, s, key, put, body)
	if status, _ := do(t, put, body, nil); status != http.StatusOK {
		t.Fatalf("PUT: %d", status)
	}
	if status, _ := do(t, put, body, nil); status != http.StatusPreconditionFailed {
		t.Errorf("the same PUT again: %d", status)
	}
	checkReads(t, s, key, body)
}
