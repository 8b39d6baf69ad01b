package api

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
)

// TestWireEnums_AreTheDomainsStates: the wire types name the states for the reference; the domain decides which exist.
func TestWireEnums_AreTheDomainsStates(t *testing.T) {
	t.Parallel()
	var causes []string
	for _, c := range client.StopCauses {
		causes = append(causes, string(c))
	}
	for _, c := range []struct {
		of     reflect.Type
		field  string
		states []string
	}{
		{reflect.TypeFor[client.Host](), "State",
			[]string{string(host.Enrolled), string(host.Active), string(host.Draining), string(host.Retired)}},
		{reflect.TypeFor[client.Quote](), "State", []string{string(market.QuoteHeld), string(market.QuoteRented),
			string(market.QuoteReturned), string(market.QuoteExpired)}},
		{reflect.TypeFor[client.SpecNetwork](), "Scope",
			[]string{string(market.ScopeAny), string(market.ScopeFabric), string(market.ScopeHost)}},
		{reflect.TypeFor[client.ClusterSpec](), "Trust", []string{string(market.TrustBonded), string(market.TrustAny)}},
		{reflect.TypeFor[cluster.Cluster](), "StopsBecause", causes},
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

// TestViewSpec_ShowsEveryField: the spec that is shown is the one that is stored, field by field.
func TestViewSpec_ShowsEveryField(t *testing.T) {
	t.Parallel()
	spec, err := market.ParseQuoteSpec([]byte(`{"name":"n","project":"p","labels":{"a":"b"},"nodes":2,"gpus_per_node":3,
		"gpu":"vram_gb >= 80","image":"x/y:1","restart":"on_failure","egress":"limited","entrypoint":["e"],
		"user":"u:g","command":["c"],
		"ports":[{"port":80,"protocol":"http"}],"disk_gb":11,"disk_limited":true,"scratch_gb":12,"runtime":"runsc",
		"max_price_per_hour":"9.5","max_duration":7200,"budget":"20",
		"network":{"scope":"fabric","min_gbps":100},"trust":"any","on_node_failure":"replace"}`))
	if err != nil {
		t.Fatal(err)
	}
	spec.SSHKeyIDs = []id.SSHKey{id.New[id.SSHKey]()}
	spec.Template = new(string)
	spec.Mounts = []market.Mount{{Path: "/data", Volume: id.New[id.Volume](), Mode: "ro", Pause: "never",
		Snapshot: market.SnapshotPolicy{EveryS: 60, OnNotice: true}}}
	spec.Interruptible = true
	open, _ := spec.Split()
	stored, err := json.Marshal(open)
	if err != nil {
		t.Fatal(err)
	}
	shown, err := json.Marshal(viewSpec(open))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(stored), string(shown)); diff != "" {
		t.Errorf("stored -, shown +:\n%s", diff)
	}
	v := reflect.ValueOf(open)
	for i := range v.NumField() {
		if f := v.Type().Field(i); v.Field(i).IsZero() && f.Name != "RegistryAuth" { // a secret, never shown
			t.Errorf("the test sets no %s", f.Name)
		}
	}
}
