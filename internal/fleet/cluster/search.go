package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/musterhq/muster/internal/bus"
	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/db/dbq"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster/lifecycle"
	"github.com/musterhq/muster/internal/id"
)

// ListRequest requests one page of an organisation's clusters.
type ListRequest struct {
	Filter Filter
	Words  string     // each has to match a part of the name, project, image or a label, or the end of the id
	Sort   Sort       // "" = newest first
	Label  string     // by which SortLabel sorts
	After  id.Cluster // the last one of the previous page; zero: start with the first
	Limit  int        // > 0
}

// Filter selects clusters by their state: a lifecycle.State, or one of the filters.
type Filter string

// Filters of several states.
const (
	FilterAny    Filter = ""
	FilterActive Filter = "active" // has not ended
	FilterEnded  Filter = "ended"
)

// Sort is an order of clusters; those with equal keys follow each other by age. With a "-" before it, it is reversed.
type Sort string

// The orders.
const (
	SortNewest  Sort = "-created"
	SortOldest  Sort = "created"
	SortName    Sort = "name"
	SortPrice   Sort = "price"
	SortProject Sort = "project"
	SortLabel   Sort = "label" // by the value of ListRequest.Label
)

// maxWords bounds what a search costs.
const maxWords = 8

// Views are clusters as their renters see them.
type Views struct {
	db  *db.DB
	bus *bus.Bus // may be nil
	cfg *Config

	lists   db.Shared[listed, []Cluster]
	encoded db.Shared[listed, []byte]
}

// List returns a page of the organisation's clusters. The number of its statements does not depend on the number of
// clusters, and callers that ask for the same page at the same time share one read, which begins after they asked. They
// must not change what they get. Fault: Invalid.
func (vs *Views) List(ctx context.Context, org id.Org, r ListRequest) ([]Cluster, error) {
	return vs.lists.Read(ctx, listed{org, r}, func(ctx context.Context) ([]Cluster, error) {
		clusters, err := vs.list(ctx, org, r)
		if err != nil {
			return nil, err
		}
		return views(ctx, vs.db.Q, clusters)
	})
}

// ListEncoded is List for callers that want the page as bytes: encode makes them, and those who share a read share its
// encoding, too. All callers have to pass an encode that does the same. They must not change what they get.
func (vs *Views) ListEncoded(ctx context.Context, org id.Org, r ListRequest,
	encode func([]Cluster) ([]byte, error)) ([]byte, error) {
	return vs.encoded.Read(ctx, listed{org, r}, func(ctx context.Context) ([]byte, error) {
		clusters, err := vs.List(ctx, org, r)
		if err != nil {
			return nil, err
		}
		return encode(clusters)
	})
}

// listed names a page of an organisation's clusters.
type listed struct {
	org id.Org
	ListRequest
}

func (vs *Views) list(ctx context.Context, org id.Org, r ListRequest) (out []dbq.Cluster, err error) {
	words := strings.Fields(strings.ToLower(r.Words))
	if len(words) > maxWords {
		return nil, fault.InvalidField("query.q", "has more than %d words", maxWords)
	}
	after, states, limit := id.UUIDs(r.After)[0], r.Filter.states(), int32(r.Limit)
	newest := len(words) == 0 && (r.Sort == "" || r.Sort == SortNewest)
	switch {
	case newest && r.Filter == FilterActive:
		rows, e := vs.db.Q.ListLiveClusters(ctx, org, after, limit)
		err, out = e, make([]dbq.Cluster, 0, len(rows))
		for _, row := range rows {
			out = append(out, row.Cluster)
		}
	case newest:
		rows, e := vs.db.Q.ListClusters(ctx, dbq.ListClustersParams{
			OrgID: org, Before: after, States: states, MaxRows: limit,
		})
		err, out = e, make([]dbq.Cluster, 0, len(rows))
		for _, row := range rows {
			out = append(out, row.Cluster)
		}
	default:
		p := dbq.SearchClustersParams{OrgID: org, After: after, States: states, MaxRows: limit, Label: r.Label, Words: words}
		if p.Sort, p.Descending, err = r.Sort.key(); err != nil {
			return nil, err
		}
		for _, w := range words {
			tail, mask := idTail(w)
			p.Tails, p.Masks = append(p.Tails, tail), append(p.Masks, mask)
		}
		rows, e := vs.db.Q.SearchClusters(ctx, p)
		err, out = e, make([]dbq.Cluster, 0, len(rows))
		for _, row := range rows {
			out = append(out, row.Cluster)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("list clusters of %s: %w", org, err)
	}
	return out, nil
}

// states returns the states that a filter selects; none: all.
func (f Filter) states() []string {
	switch f {
	case FilterAny:
		return []string{}
	case FilterActive:
		return []string{string(lifecycle.Provisioning), string(lifecycle.Running), string(lifecycle.Degraded)}
	case FilterEnded:
		return []string{string(lifecycle.Releasing), string(lifecycle.Released), string(lifecycle.Failed)}
	}
	return []string{string(f)}
}

// key returns what the database sorts by, and in which direction. Fault: Invalid.
func (s Sort) key() (key string, descending bool, err error) {
	name, reversed := strings.CutPrefix(string(s), "-")
	switch known := []Sort{SortOldest, SortName, SortPrice, SortProject, SortLabel}; {
	case s == "":
		return string(SortOldest), true, nil
	case slices.Contains(known, Sort(name)):
		return name, reversed, nil
	}
	return "", false, fault.InvalidField("query.sort",
		"has to be created, name, price or project, with - before it for the reverse order")
}

// tailChars is how many characters at the end of an id a search compares: 45 bits, all of them random.
const tailChars = 9

// idTail returns the bits at the end of an id that ends with the word, and which bits those are. For a word that ends
// no id it returns a tail that no id has.
func idTail(word string) (tail, mask int64) {
	word = strings.TrimPrefix(word, "cl_")
	if len(word) < 4 {
		return -1, 0
	}
	word = word[max(0, len(word)-tailChars):]
	for _, r := range word {
		n := strings.IndexRune(id.Alphabet, r)
		if n < 0 {
			return -1, 0
		}
		tail, mask = tail<<5|int64(n), mask<<5|31
	}
	return tail, mask
}
