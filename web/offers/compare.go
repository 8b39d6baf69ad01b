package offers

import (
	"fmt"
	"maps"
	"net/url"
	"slices"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// maxCompared is how many offers stand side by side.
const maxCompared = 4

// compare shows two to four offers side by side.
func (s *Pages) compare(v *page.Visit) error {
	chosen := v.R.URL.Query()["offer"]
	if len(chosen) < 2 || len(chosen) > maxCompared {
		return fault.New(fault.Invalid, "Choose 2 to %d offers on the market to compare them.", maxCompared)
	}
	found, err := s.offersByID(v, chosen)
	if err != nil {
		return err
	}
	c := Comparison{Gone: len(chosen) - len(found), Choose: "/offers/choose?" + url.Values{"offer": chosen}.Encode()}
	for _, o := range found {
		c.Offers = append(c.Offers, ComparedOffer{
			Name: view.ModelName(o.GPUModel),
			Host: o.HostName,
			URL:  "/offers/" + o.ID.String(),
			Rent: "/offers/choose?" + url.Values{"offer": {o.ID.String()}}.Encode(),
		})
	}
	c.Rows = compareRows(found, s.Currency)
	return s.Render(v, ComparePage(v.Page("Compare offers", "market"), c))
}

// compareRows returns a row for each fact, with the values of all offers.
func compareRows(offers []client.Offer, currency string) []CompareRow {
	var rows []CompareRow
	for i, o := range offers {
		n := 0
		for _, g := range factGroups(o, currency) {
			for _, f := range g.Facts {
				if i == 0 {
					rows = append(rows, CompareRow{Group: g.Title, Name: f.Name})
				}
				r := &rows[n]
				r.Values = append(r.Values, f.Value)
				r.Differs = r.Differs || f.Value != r.Values[0]
				n++
			}
		}
	}
	for i := len(rows) - 1; i > 0; i-- {
		if rows[i].Group == rows[i-1].Group {
			rows[i].Group = "" // a heading stands before its first row only
		}
	}
	return rows
}

// choose redirects to the search for the chosen offers, with a node on each host. It names the hosts, unless their
// names also find other offers: then only ids are safe.
func (s *Pages) choose(v *page.Visit) error {
	chosen := v.R.URL.Query()["offer"]
	if len(chosen) == 0 || len(chosen) > market.MaxPage {
		return fault.New(fault.Invalid, "Choose the hosts that you want to rent on the market.")
	}
	found, err := s.offersByID(v, chosen)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fault.New(fault.NotFound, "None of these offers is on the market any more.")
	}
	names, hosts := map[string]bool{}, map[id.Host]bool{}
	var ids []string
	gpus := market.MaxGPUsPerNode
	for _, o := range found {
		names[o.HostName], hosts[o.HostID] = true, true
		ids = append(ids, o.ID.String())
		gpus = min(gpus, o.GPUsFree)
	}
	q, err := query.Query{}.SetIn("host_name", slices.Sorted(maps.Keys(names)))
	if err != nil {
		return err
	}
	named, err := s.Market.SearchOffers(v.R.Context(), market.OfferSearch{Query: q.String()})
	if err != nil {
		return err
	}
	if named.Total != len(found) {
		if q, err = (query.Query{}).SetIn("id", ids); err != nil {
			return err
		}
	}
	return page.Back(v, "/offers?"+url.Values{
		"q":     {q.String()},
		"nodes": {fmt.Sprint(len(hosts))},
		"gpus":  {fmt.Sprint(gpus)},
	}.Encode())
}
