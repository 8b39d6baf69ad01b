package api

import (
	"reflect"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/host"
)

// TestWireEnums_AreTheDomainsStates: the wire types name the states for the reference; the domain decides which exist.
func TestWireEnums_AreTheDomainsStates(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		of     reflect.Type
		field  string
		states []string
	}{
		{reflect.TypeFor[client.Host](), "State",
			[]string{string(host.Enrolled), string(host.Active), string(host.Draining), string(host.Retired)}},
		{reflect.TypeFor[client.HostGPU](), "Health", []string{host.Healthy, host.Suspect, host.Quarantined}},
	} {
		f, ok := c.of.FieldByName(c.field)
		if !ok {
			t.Fatalf("%s has no field %s", c.of, c.field)
		}
		if got, want := f.Tag.Get("enum"), strings.Join(c.states, ","); got != want {
			t.Errorf("%s.%s: enum %q, want %q", c.of, c.field, got, want)
		}
	}
}
