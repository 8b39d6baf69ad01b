package offers

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// offers shows the market: the search, and next to it the form for a cluster or the held quote (?quote=).
func (s *Pages) offers(v *page.Visit) error {
	m := Market{Query: v.R.FormValue("q"), Sort: v.R.FormValue("sort"), Spec: specForm(v)}
	if q := v.R.FormValue("quote"); q != "" {
		if !v.SignedIn() {
			s.ToSignIn(v)
			return nil
		}
		quote, err := s.quoteOf(v, q)
		if err != nil {
			return err
		}
		if err := s.showQuote(v, &m, quote); err != nil {
			return err
		}
	}
	if name := v.R.FormValue("template"); name != "" {
		if err := s.fillTemplate(v, &m, name); err != nil {
			return err
		}
	}
	if again := v.R.FormValue("again"); again != "" {
		if !v.SignedIn() {
			s.ToSignIn(v)
			return nil
		}
		if err := s.fillAgain(v, &m, again); err != nil {
			return err
		}
	}
	return s.showMarket(v, m)
}

// showMarket renders the page with the search for m.Query. For an invalid query it shows a caret under the error.
func (s *Pages) showMarket(v *page.Visit, m Market) error {
	m.SignedIn, m.Currency = v.SignedIn(), s.Currency
	err := s.readVolumes(v, &m)
	if err != nil {
		return err
	}
	if m.Lines, err = s.linesOf(v, &m.Spec, m.Query); err != nil {
		return err
	}
	var mistake *query.Error
	query, err := query.Parse(m.Query)
	if errors.As(err, &mistake) {
		m.QueryError = &QueryError{Position: mistake.Pos, Message: mistake.Message, Fixed: meant(mistake.Fixed, m.Sort)}
		m.Fields = fieldRows("", m.Sort)
		return s.Render(v, MarketPage(v.Page("Market", "market"), m))
	}
	page, err := s.Market.SearchOffers(v.R.Context(), market.OfferSearch{
		Query: m.Query,
		Sort:  m.Sort,
		After: v.R.FormValue("after"),
		Limit: 50,
	})
	if err != nil {
		return err
	}
	m.Total, m.FreeGPUs, m.Hosts = page.Total, page.GPUsFree, page.Hosts
	if page.DidYouMean != nil {
		m.Meant = meant(*page.DidYouMean, m.Sort)
	}
	if page.Total == 0 && m.Query != "" {
		if m.Near, err = s.nearMisses(v, m); err != nil {
			return err
		}
	}
	m.Fields = fieldRows(query.String(), m.Sort)
	m.Chips, m.Filters, m.SortLinks = chips(page.Explain, m.Sort), filters(query, page), sortLinks(m.Query, m.Sort)
	for _, o := range page.Items {
		m.Offers = append(m.Offers, offerRow(o, m.Quote))
	}
	if err := s.addReady(v, &m); err != nil {
		return err
	}
	if page.Next != nil {
		m.Next = "/offers?" + url.Values{"q": {m.Query}, "sort": {m.Sort}, "after": {*page.Next}}.Encode()
	}
	return s.Render(v, MarketPage(v.Page("Market", "market"), m))
}

// roomBelow is the longest list of offers below which the page has room for templates.
const roomBelow = 8

// addReady adds the built-in templates to a page that would be mostly empty: a newcomer on a small market sees what can
// be run, and not only where.
func (s *Pages) addReady(v *page.Visit, m *Market) error {
	if len(m.Offers) == 0 || len(m.Offers) > roomBelow || m.Quote != nil || m.Explain != nil {
		return nil
	}
	all, err := s.Templates.List(v.R.Context(), v.Who)
	if err != nil {
		return err
	}
	for _, x := range all {
		if x.BuiltIn {
			m.Ready = append(m.Ready, viewTemplate(x))
		}
	}
	return nil
}

// nearMisses returns the searches that are nearest to one without a result.
func (s *Pages) nearMisses(v *page.Visit, m Market) ([]Near, error) {
	list, err := s.Market.NearMisses(v.R.Context(), m.Query)
	if err != nil {
		return nil, err
	}
	out := make([]Near, len(list))
	for i, x := range list {
		out[i] = Near{
			Change: x.To + " instead of " + x.From,
			Found:  fmt.Sprintf("%s free on %s", view.Plural(x.GPUs, "GPU", "GPUs"), view.Plural(x.Hosts, "host", "hosts")),
			Lowest: x.Lowest,
			URL:    marketLink(x.Query, m.Sort),
		}
		if x.To == "" {
			out[i].Change = "without " + x.From
		}
	}
	return out, nil
}

// meant returns the search for a query that was probably meant; nil if q is "".
func meant(q, sort string) *Meant {
	if q == "" {
		return nil
	}
	return &Meant{Query: q, URL: marketLink(q, sort)}
}

// fieldRows returns the fields of the query language. Their links add an example to the query q.
func fieldRows(q, sort string) []FieldRow {
	rows := make([]FieldRow, len(query.Fields))
	for i, f := range query.Fields {
		rows[i] = FieldRow{Name: f.Name, About: f.About, Example: f.Example,
			Add: marketLink(strings.TrimSpace(q+" "+f.Example), sort)}
	}
	return rows
}

// chips returns the terms of the query, each with a link to the search without it.
func chips(terms []client.Exclusion, sort string) []Chip {
	var out []Chip
	for i, t := range terms {
		parts := strings.SplitN(t.Constraint, " ", 3)
		if len(parts) < 3 {
			continue
		}
		var rest []string
		for j, o := range terms {
			if j != i {
				rest = append(rest, o.Constraint)
			}
		}
		out = append(out, Chip{
			Field:    parts[0],
			Op:       parts[1],
			Value:    parts[2],
			Excludes: t.Excluded,
			Without:  marketLink(strings.Join(rest, " "), sort),
		})
	}
	return out
}

func offerRow(o client.Offer, quote *QuoteBox) OfferRow {
	row := OfferRow{
		ID:           o.ID.String(),
		Model:        o.GPUModel,
		Host:         o.HostName,
		Region:       o.Region,
		Free:         o.GPUsFree,
		Total:        o.GPUsTotal,
		VRAM:         int(o.VRAMGB),
		Price:        o.PricePerGPUHour,
		Interconnect: fmt.Sprintf("PCIe %d", o.PCIeGen),
		FabricDetail: "measured",
		Verified:     view.State{Word: "Declared", Icon: "declared", Tone: "idle"},
	}
	if o.NVLink {
		row.Interconnect, row.InterconnectDetail = "NVLink", fmt.Sprintf("%.0f Gbit/s", o.NVLinkGbps)
	}
	if o.Fabric != nil {
		row.Fabric = *o.Fabric
	}
	if o.BusbwGbps != nil {
		row.Busbw = fmt.Sprintf("%.1f", *o.BusbwGbps)
	} else {
		row.FabricDetail = "not measured"
	}
	if o.Reliability != nil {
		row.Reliability = fmt.Sprintf("%.2f", *o.Reliability*100)
	}
	switch {
	case o.Verified:
		row.Verified = view.State{Word: "Proven", Icon: "proven", Tone: "ok"}
	case o.Simulated:
		row.Verified = view.State{Word: "Simulated", Icon: "declared", Tone: "idle"}
	}
	if limit, made := o.PowerLimitW, o.PowerDefaultW; limit != nil && made != nil && *limit < *made {
		row.Power = fmt.Sprintf("limited to %d of %d W", *limit, *made)
	}
	if o.Degraded != nil {
		row.Degraded = "degraded: " + *o.Degraded
	}
	if o.Display {
		row.Display = "drives a display: long kernels are ended"
	}
	if o.ScratchGB > 0 {
		row.Scratch = fmt.Sprintf("%d GB scratch", o.ScratchGB)
	}
	var has []string
	if o.DiskLimited {
		has = append(has, "disk enforced")
	}
	if slices.Contains(o.Runtimes, agentapi.RuntimeRunsc) {
		has = append(has, "gVisor")
	}
	row.Isolation = strings.Join(has, ", ")
	if quote != nil {
		for _, r := range quote.Rows {
			if r.Host == o.HostName {
				row.Ranks = append(row.Ranks, slices.Repeat([]int{r.Rank}, r.GPUs)...)
			}
		}
	}
	return row
}
