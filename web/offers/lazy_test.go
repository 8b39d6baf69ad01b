package offers

import (
	"testing"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// A lazy volume is a mode of the form. The form keeps the cache that it does not show, and drops it with the mode.
func TestLazyRows(t *testing.T) {
	t.Parallel()
	vol := id.New[id.Volume]()
	was := []market.Mount{{Volume: vol, Path: "/data", Mode: agentapi.MountRO, Lazy: true, CacheGB: 50}}
	rows := mountRows(was)
	if len(rows) != 1 || rows[0].Mode != modeLazy {
		t.Fatalf("%+v", rows)
	}
	var bad fault.Fields
	back := mountsOf(rows, was, &bad)
	if len(bad) > 0 || back[0] != was[0] {
		t.Errorf("%+v %v", back, bad)
	}
	if fresh := mountsOf(rows, nil, &bad); !fresh[0].Lazy || fresh[0].Mode != agentapi.MountRO ||
		fresh[0].CacheGB != market.DefaultCacheGB {
		t.Errorf("%+v", fresh)
	}
	rows[0].Mode = agentapi.MountRO
	if plain := mountsOf(rows, was, &bad); plain[0].Lazy || plain[0].CacheGB != 0 {
		t.Errorf("%+v", plain)
	}
}
