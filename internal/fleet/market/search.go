package market

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/text"
)

// OfferSearch is a request for one page of a search.
type OfferSearch struct {
	Query string // see query.Parse
	Sort  string // a field, with "-" in front for descending; "" = price_per_gpu_hour
	Limit int    // 1 to 200; 0 = 50
	After string // Next of the previous page
}

// MaxPage is the largest number of offers on a page.
const MaxPage = 200

// SearchOffers returns one page of the offers that can be rented now. Fault: Invalid, with the position, for a
// malformed query, sort or cursor.
func (m *Market) SearchOffers(ctx context.Context, s OfferSearch) (client.OfferPage, error) {
	q, err := query.Parse(s.Query)
	if err != nil {
		return client.OfferPage{}, fault.InvalidField("query.q", "%s", err)
	}
	o, err := parseOrder(s.Sort)
	if err != nil {
		return client.OfferPage{}, err
	}
	if s.Limit == 0 {
		s.Limit = 50
	}
	if s.Limit < 1 || s.Limit > MaxPage {
		return client.OfferPage{}, fault.InvalidField("query.limit", "want 1 to %d", MaxPage)
	}
	var after *cursor
	if s.After != "" {
		if after, err = parseCursor(s.After, o); err != nil {
			return client.OfferPage{}, err
		}
	}
	if err := m.view.recent(ctx, m.cfg.MaxAge); err != nil {
		return client.OfferPage{}, err
	}
	m.view.mu.RLock()
	defer m.view.mu.RUnlock()
	snap := m.view.snap
	return snap.pages.get(snap.version, s, func() client.OfferPage { return snap.search(q, o, s.Limit, after) }), nil
}

// maxPages is the number of pages that are kept of one version of a snapshot.
const maxPages = 256

// pageCache holds the pages that were searched for in one version of a snapshot. It is safe for concurrent use.
type pageCache struct {
	mu              sync.Mutex
	version         int64
	pages           map[OfferSearch]client.OfferPage
	facetsOf        int64 // version of models and regions, plus one
	models, regions []client.Facet
}

// get returns the page of a search, which make computes if it is not known. The page must not be modified.
func (c *pageCache) get(version int64, s OfferSearch, make func() client.OfferPage) client.OfferPage {
	c.mu.Lock()
	if c.version != version || c.pages == nil || len(c.pages) >= maxPages {
		c.version, c.pages = version, map[OfferSearch]client.OfferPage{}
	}
	page, known := c.pages[s]
	c.mu.Unlock()
	if known {
		return page
	}
	page = make()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == version {
		c.pages[s] = page
	}
	return page
}

// allFacets returns the models and the regions with free GPUs. They are counted once per version.
func (s *Snapshot) allFacets() (models, regions []client.Facet) {
	c := &s.pages
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.facetsOf != s.version+1 {
		c.facetsOf = s.version + 1
		c.models = s.facets(func(f *facts) string { return f.model })
		c.regions = s.facets(func(f *facts) string { return f.region })
	}
	return c.models, c.regions
}

func (s *Snapshot) search(q query.Query, o order, limit int, after *cursor) client.OfferPage {
	page := client.OfferPage{Page: client.Page[client.Offer]{Items: []client.Offer{}}, Explain: []client.Exclusion{}}
	matches, fell := s.match(q)
	fabrics := map[id.Fabric]bool{}
	hosts := make(map[id.Host]bool, len(matches))
	for _, l := range matches {
		page.Total++
		page.GPUsFree += l.class.free
		hosts[l.who.host] = true
		if !l.class.fabric.IsZero() {
			fabrics[l.class.fabric] = true
		}
	}
	page.Hosts, page.Fabrics = len(hosts), len(fabrics)
	page.Models, page.Regions = s.allFacets()
	left := 0
	for _, n := range fell {
		left += n
	}
	for i, t := range q.Terms() {
		left -= fell[i]
		page.Explain = append(page.Explain, client.Exclusion{Constraint: t.String(), Excluded: fell[i], Left: left})
	}
	if page.Total == 0 {
		page.DidYouMean = s.suggest(q)
	}
	rows, more := o.first(matches, after, limit)
	for _, r := range rows {
		page.Items = append(page.Items, r.lot.offerView())
	}
	if more {
		next := rows[len(rows)-1].at.String()
		page.Next = &next
	}
	return page
}

// locked reports whether the host gets no placements at present because a run on it recently ended by its fault.
func (s *Snapshot) locked(h id.Host) bool { return s.gangs != nil && s.gangs.Locked[h] }

// facets returns the values of a field among offers with a free GPU, with the number of free GPUs.
func (s *Snapshot) facets(of func(*facts) string) []client.Facet {
	free := map[string]int{}
	for _, c := range s.classes {
		v := of(&c.facts)
		if v == "" || c.free == 0 {
			continue
		}
		for _, l := range c.lots {
			if !s.locked(l.who.host) {
				free[v] += c.free
			}
		}
	}
	out := make([]client.Facet, 0, len(free))
	for v, n := range free {
		out = append(out, client.Facet{Value: v, GPUsFree: n})
	}
	slices.SortFunc(out, func(a, b client.Facet) int {
		return cmp.Or(b.GPUsFree-a.GPUsFree, cmp.Compare(a.Value, b.Value))
	})
	return out
}

// row is a matching lot with its sort key.
type row struct {
	lot *lot
	at  cursor
}

// first returns the first limit of the lots in this order, after the cursor if there is one. more reports whether there
// are others behind them. It keeps only so many while it looks at all.
func (o order) first(matches []*lot, after *cursor, limit int) (rows []row, more bool) {
	rows = make([]row, 0, limit+1)
	var of *class
	var at cursor
	for _, l := range matches {
		if l.class != of || o.field.Kind == query.Identity {
			of, at = l.class, o.cursor(l) // lots of a class have equal values, except for names
		}
		at.ID = l.who.offer
		if after != nil && o.compare(&at, after) <= 0 {
			continue
		}
		if len(rows) > limit && o.compare(&at, &rows[limit].at) > 0 {
			continue
		}
		i := sort.Search(len(rows), func(i int) bool { return o.compare(&rows[i].at, &at) > 0 })
		if len(rows) > limit {
			rows = rows[:limit]
		}
		rows = slices.Insert(rows, i, row{l, at})
	}
	if more = len(rows) > limit; more {
		rows = rows[:limit]
	}
	return rows, more
}

// match returns the lots with a free GPU that satisfy the query, and how many hosts each term excluded. The last
// element of fell is the number of hosts that are not excluded.
func (s *Snapshot) match(q query.Query) (matches []*lot, fell []int) {
	fell = make([]int, len(q.Terms())+1)
	furthest := make(map[id.Host]int, len(s.hosts))
	for _, c := range s.classes {
		if c.free == 0 {
			continue
		}
		n := firstMiss(q, false, &c.facts)
		for _, l := range c.lots {
			if s.locked(l.who.host) {
				continue
			}
			at := min(n, firstMiss(q, true, &l.who))
			if at == len(q.Terms()) {
				matches = append(matches, l)
			}
			if far, seen := furthest[l.who.host]; !seen || at > far {
				furthest[l.who.host] = at
			}
		}
	}
	for _, at := range furthest {
		fell[at]++
	}
	return matches, fell
}

// firstMiss returns the index of the first term that the row does not satisfy, or the number of terms if it satisfies
// all. It checks only terms on fields of kind Identity if naming is set, else only the other terms.
func firstMiss(q query.Query, naming bool, row query.Row) int {
	terms := q.Terms()
	for i := range terms {
		if (terms[i].Field.Kind == query.Identity) == naming && !terms[i].Matches(row) {
			return i
		}
	}
	return len(terms)
}

// order is a sort order: by one field, then by offer id. Unknown values come last in both directions.
type order struct {
	field *query.Field
	down  bool
}

func parseOrder(s string) (order, error) {
	if s == "" {
		s = "price_per_gpu_hour"
	}
	name, down := strings.CutPrefix(s, "-")
	f := query.FieldNamed(name)
	if f == nil {
		return order{}, fault.InvalidField("query.sort", "there is no field %q; %s", text.Ellipsis(name, 40),
			query.Suggest(name))
	}
	return order{f, down}, nil
}

// cursor is the position after the last offer of a page: its sort value and id.
type cursor struct {
	Field string   `json:"f"`
	Down  bool     `json:"d,omitempty"`
	Num   *float64 `json:"n,omitempty"`
	Text  *string  `json:"t,omitempty"`
	ID    id.Offer `json:"i"`
}

func (o order) cursor(l *lot) cursor {
	c := cursor{Field: o.field.Name, Down: o.down, ID: l.who.offer}
	switch {
	case o.field.IsNumber():
		if n, known := l.class.facts.Number(o.field); known {
			n = min(n, 1e300) // an unlimited duration is infinite, which JSON cannot encode
			c.Num = &n
		}
	case o.field.Kind == query.Identity:
		t := l.who.Text(o.field)
		c.Text = &t
	default:
		if t := l.class.facts.Text(o.field); t != "" {
			c.Text = &t
		}
	}
	return c
}

// compare defines a total order: offers with equal values are sorted by id.
func (o order) compare(a, b *cursor) int {
	if unknown := b2i(a.Num == nil && a.Text == nil) - b2i(b.Num == nil && b.Text == nil); unknown != 0 {
		return unknown
	}
	n := 0
	switch {
	case a.Num != nil && b.Num != nil:
		n = cmp.Compare(*a.Num, *b.Num)
	case a.Text != nil && b.Text != nil && o.field.Kind == query.Version:
		n = query.CompareVersions(*a.Text, *b.Text)
	case a.Text != nil && b.Text != nil:
		n = cmp.Compare(strings.ToLower(*a.Text), strings.ToLower(*b.Text))
	}
	if o.down {
		n = -n
	}
	return cmp.Or(n, a.ID.Compare(b.ID))
}

func (c *cursor) String() string {
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // cannot happen with these types
	}
	return base64.RawURLEncoding.EncodeToString(b)
}

func parseCursor(s string, o order) (*cursor, error) {
	b, err := base64.RawURLEncoding.DecodeString(s)
	var c cursor
	if err != nil || json.Unmarshal(b, &c) != nil || c.Field != o.field.Name || c.Down != o.down || c.ID.IsZero() {
		return nil, fault.InvalidField("query.after", "is not the next of a page in this order")
	}
	return &c, nil
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}
