package agent_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
)

// An idle host fetches what is popular, unless its operator has switched that off, and a lease of that image finds it
// there. A host with a lease fetches nothing.
func TestPopularImagesAreFetchedByIdleHosts(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	other := strings.Replace(h.image, "job:1", "other:1", 1)
	pushJob(t, other)
	held := func() []string {
		t.Helper()
		var list []struct {
			Ref string `json:"ref"`
		}
		b, err := os.ReadFile(filepath.Join(h.dir, "images", "images.json"))
		if err == nil {
			err = json.Unmarshal(b, &list)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		var refs []string
		for _, i := range list {
			refs = append(refs, i.Ref)
		}
		return refs
	}
	wanted := strings.Replace(h.image, "job:1", "absent:1", 1)
	h.set(func() { h.popular = []string{wanted, h.image} }) // the first is not there any more: the second comes
	h.awaitReport("a host that has the list", func(s agentapi.Sync) bool { return len(s.Leases) == 0 })
	if refs := held(); len(refs) != 0 {
		t.Errorf("switched off, and it fetched %v", refs)
	}
	h.stop()
	h.prefetch = true
	h.start()
	poll(t, "the popular image", func() bool { return slices.Contains(held(), h.image) })

	spec := h.launch(h.spec())
	h.await(spec.LeaseRef, "running", running)
	h.stop()
	h.set(func() { h.popular = []string{other} })
	h.start()
	h.await(spec.LeaseRef, "running under the next agent", running)
	if slices.Contains(held(), other) {
		t.Error("a host with a lease fetches")
	}
}
