package api

import (
	"reflect"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fleet/market"
)

// A spec that is sent has a schema of its own: almost everything may be left out, while every field of a spec that is
// received is there. null stands for the default, too.
const (
	newClusterSchema  = "NewCluster"
	newQuoteSchema    = "NewQuote"
	rentQuoteSchema   = "RentQuote"
	clusterSpecSchema = "ClusterSpec"
)

// requestSchemas are the schemas of specs that are sent.
var requestSchemas = map[string]bool{newClusterSchema: true, newQuoteSchema: true, rentQuoteSchema: true}

// requestSpec returns a reference to the schema of a spec that is sent. It has the fields of ClusterSpec for which keep
// returns true; a nil keep keeps all.
func requestSpec(r huma.Registry, name, description string, keep func(field string) bool,
	required ...string) *huma.Schema {
	ref := &huma.Schema{Ref: "#/components/schemas/" + name}
	if r.Map()[name] != nil {
		return ref
	}
	r.Schema(reflect.TypeFor[client.ClusterSpec](), true, clusterSpecSchema)
	full := r.Map()[clusterSpecSchema]
	properties := map[string]*huma.Schema{}
	for field, p := range full.Properties {
		if keep != nil && !keep(field) || slices.Contains(notOffered, field) {
			continue
		}
		sent := *p
		sent.Nullable = sent.Ref == "" && !slices.Contains(required, field)
		if field == "network" { // here, too, everything may be left out
			sent.Ref = r.Schema(reflect.TypeFor[client.Network](), true, "Network").Ref
		}
		properties[field] = &sent
	}
	r.Map()[name] = &huma.Schema{
		Type: huma.TypeObject, Description: description, Properties: properties, Required: required,
		AdditionalProperties: false,
	}
	return ref
}

// notOffered are fields of a spec that a caller cannot use yet.
var notOffered = []string{"interruptible", "template"}

// newCluster is the schema of a cluster to rent.
func newCluster(r huma.Registry) *huma.Schema {
	return requestSpec(r, newClusterSchema, "A cluster to rent. Everything but the image has a default.", nil, "image")
}

// newQuote is the schema of a cluster to price.
func newQuote(r huma.Registry) *huma.Schema {
	return requestSpec(r, newQuoteSchema, "A cluster to price. Everything has a default; the image may follow when the "+
		"quote is rented.", nil)
}

// rentQuote is the schema of a quote to rent.
func rentQuote(r huma.Registry) *huma.Schema {
	ref := requestSpec(r, rentQuoteSchema, "A quote to rent, and fields of its spec that change neither placement nor "+
		"price.", market.Overridable)
	s := r.Map()[rentQuoteSchema]
	if s.Properties["quote_id"] == nil {
		s.Properties["quote_id"] = &huma.Schema{Type: huma.TypeString}
		s.Required = []string{"quote_id"}
	}
	return ref
}
