package api

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
)

// elsewhere is why a type of answers is not declared in package client, and the type there with the same properties.
type elsewhere struct {
	why  string
	twin reflect.Type // nil: there is none
}

// wireElsewhere are the types of answers that package client does not declare.
var wireElsewhere = map[reflect.Type]elsewhere{
	reflect.TypeFor[nothing](): {"an answer without a body", nil},

	reflect.TypeFor[agentapi.Progress](): {"hosts send it", reflect.TypeFor[client.Progress]()},
	reflect.TypeFor[agentapi.Layer]():    {"hosts send it", reflect.TypeFor[client.Layer]()},
	reflect.TypeFor[agentapi.PeerPath](): {"hosts send it", reflect.TypeFor[client.Path]()},

	reflect.TypeFor[cluster.Cluster](): {"it has states of package lifecycle", reflect.TypeFor[client.Cluster]()},
	reflect.TypeFor[cluster.Node]():    {"it has states of package lifecycle", reflect.TypeFor[client.Node]()},
	reflect.TypeFor[market.Spec]():     {"it decodes itself, strictly", reflect.TypeFor[client.ClusterSpec]()},
	reflect.TypeFor[market.Network]():  {"a part of market.Spec", reflect.TypeFor[client.SpecNetwork]()},
}

// TestWireTypesLiveInClient: callers decode answers into the types of package client, so the server encodes those. A
// second declaration elsewhere would drift away from them.
func TestWireTypesLiveInClient(t *testing.T) {
	t.Parallel()
	const module = "github.com/musterhq/muster/"
	seen := map[reflect.Type]bool{}
	var walk func(x reflect.Type, from string)
	walk = func(x reflect.Type, from string) {
		switch x.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			walk(x.Elem(), from)
			return
		case reflect.Struct:
		default:
			return
		}
		if seen[x] || !strings.HasPrefix(x.PkgPath(), module) || x.PkgPath() == module+"internal/id" {
			return
		}
		seen[x] = true
		isList := x.PkgPath() == reflect.TypeFor[list[int]]().PkgPath() && strings.HasPrefix(x.Name(), "list[")
		if x.PkgPath() != module+"client" && !isList && wireElsewhere[x].why == "" {
			t.Errorf("%s, in %s: declare it in package client", x, from)
		}
		for _, f := range reflect.VisibleFields(x) {
			if f.IsExported() && f.Tag.Get("json") != "-" {
				walk(f.Type, x.String())
			}
		}
	}
	table := New(Config{Currency: "USD", PublicURL: "https://muster.example"}, Deps{}).table
	for _, route := range slices.Sorted(maps.Keys(table.answers)) {
		walk(table.answers[route], route)
	}
	for x := range wireElsewhere {
		if !seen[x] {
			t.Errorf("%s is in no answer: remove the exception", x)
		}
	}
	if len(seen) < 150 {
		t.Errorf("only %d types seen: the walk is broken", len(seen))
	}
}

// TestWireTypesElsewhere_HaveTheClientsProperties: a type of answers that package client does not declare has the same
// properties as the client's type.
func TestWireTypesElsewhere_HaveTheClientsProperties(t *testing.T) {
	t.Parallel()
	for x, e := range wireElsewhere {
		if e.twin == nil {
			continue
		}
		server, caller := fieldsOf(x), fieldsOf(e.twin)
		delete(server, "-")
		for name := range server {
			if caller[name] == nil {
				t.Errorf("%s lacks %s of %s", e.twin, name, x)
			}
		}
		for name := range caller {
			if server[name] == nil {
				t.Errorf("%s lacks %s of %s", x, name, e.twin)
			}
		}
	}
}
