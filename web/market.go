package web

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/kballard/go-shellquote"

	"github.com/musterhq/muster/internal/db"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/market"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// offers is the market: search, and beside it the cluster one puts together or the quote one holds (?quote=).
func (s *Web) offers(v *visit) error {
	m := view.Market{Query: v.r.FormValue("q"), Spec: view.SpecForm{Nodes: "1", GPUs: "1", DiskGB: "50", Scope: "any"}}
	if q := v.r.FormValue("quote"); q != "" {
		if !v.signedIn() {
			s.toSignIn(v)
			return nil
		}
		quote, err := s.quoteOf(v, q)
		if err != nil {
			return err
		}
		s.showQuote(&m, quote)
	}
	return s.showMarket(v, m)
}

// showMarket completes the page with the search for m.Query. A bad query shows the page with a caret under the fault.
func (s *Web) showMarket(v *visit, m view.Market) error {
	m.SignedIn, m.Currency = v.signedIn(), s.Currency
	page, err := s.Market.SearchOffers(v.r.Context(), market.OfferSearch{Query: m.Query, After: v.r.FormValue("after"), Limit: 50})
	if fault.Is(err, fault.Invalid) {
		m.QueryError = queryError(err)
		return s.render(v, view.MarketPage(v.page("Market", "market"), m))
	}
	if err != nil {
		return err
	}
	m.FreeGPUs, m.Hosts, m.Fabrics = page.GPUsFree, page.Hosts, page.Fabrics
	m.Chips = chips(page.Explain)
	for _, o := range page.Items {
		m.Offers = append(m.Offers, offerRow(o, m.Quote))
	}
	if page.Next != nil {
		m.Next = "/offers?" + url.Values{"q": {m.Query}, "after": {*page.Next}}.Encode()
	}
	return s.render(v, view.MarketPage(v.page("Market", "market"), m))
}

// queryError reads the position out of the fault; "position" is an extra member of it.
func queryError(err error) *view.QueryError {
	f := fault.From(err)
	e := &view.QueryError{Message: f.Message}
	if p, ok := f.Extra["position"].(int); ok {
		e.Position = p
	}
	if len(f.Fields) > 0 {
		e.Message = f.Fields[0].Message
	}
	return e
}

// chips are the terms of the query, each with the search that leaves it out.
func chips(terms []market.Exclusion) []view.Chip {
	var out []view.Chip
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
		out = append(out, view.Chip{
			Field: parts[0], Op: parts[1], Value: parts[2], Excludes: t.Excluded,
			Without: "/offers?" + url.Values{"q": {strings.Join(rest, " ")}}.Encode(),
		})
	}
	return out
}

func offerRow(o market.Offer, quote *view.QuoteBox) view.OfferRow {
	row := view.OfferRow{
		ID: o.ID.String(), Model: o.GPUModel, Host: o.HostName, Region: o.Region,
		Free: o.GPUsFree, Total: o.GPUsTotal, VRAM: int(o.VRAMGB), Price: o.PricePerGPUHour,
		Interconnect: fmt.Sprintf("PCIe %d", o.PCIeGen), FabricDetail: "measured", Verified: view.State{Word: "Declared", Icon: "declared", Tone: "idle"},
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
	if quote != nil {
		for _, r := range quote.Rows {
			if r.Host == o.HostName {
				row.Ranks = append(row.Ranks, slices.Repeat([]int{r.Rank}, r.GPUs)...)
			}
		}
	}
	return row
}

// makeQuote holds GPUs for the cluster of the form, and shows the quote or what keeps it from being made.
func (s *Web) makeQuote(v *visit) error {
	m := view.Market{Query: v.r.FormValue("q"), Spec: specForm(v)}
	quote, err := s.quoteFor(v, m)
	switch kind := fault.KindOf(err); kind {
	case "":
		return back(v, "/offers?"+url.Values{"quote": {quote.ID.String()}, "q": {m.Query}}.Encode())
	case fault.NoCapacity:
		m.Explain = explain(err, m)
		v.status = kind.HTTPStatus()
		return s.showMarket(v, m)
	default:
		return s.again(v, err, func(errs map[string]string) error {
			m.Spec.Errors = errs
			if kind == fault.InsufficientFunds {
				m.Spec.Errors[""] = fault.From(err).Message + " Add credit on the billing page, then ask again."
			}
			return s.showMarket(v, m)
		})
	}
}

func (s *Web) quoteFor(v *visit, m view.Market) (q market.Quote, err error) {
	spec, err := specOf(m.Spec, m.Query)
	if err != nil {
		return q, err
	}
	err = s.Market.Planning(v.r.Context(), func(ctx context.Context, p *market.Planner) error {
		plan, err := p.Place(ctx, spec)
		if err != nil {
			return err
		}
		return s.DB.InTx(ctx, func(ctx context.Context, tx *db.Tx) error {
			q, err = s.Market.HoldQuote(ctx, tx, v.who.Org, v.who.User, spec, plan)
			return err
		})
	})
	return q, err
}

func specForm(v *visit) view.SpecForm {
	f := v.r.FormValue
	return view.SpecForm{
		Nodes: f("nodes"), GPUs: f("gpus"), Image: f("image"), Command: f("command"), Name: f("name"),
		Budget: f("budget"), DiskGB: f("disk_gb"), Scope: f("scope"),
	}
}

// specOf reads the form. Texts that are no numbers are told beside their field, then all that Validate finds.
func specOf(f view.SpecForm, query string) (market.Spec, error) {
	spec := market.DefaultSpec()
	var bad fault.Fields
	number := func(field, text string, set func(int64)) {
		if text = strings.TrimSpace(text); text == "" {
			return
		}
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			bad.Add(field, "is not a whole number")
			return
		}
		set(n)
	}
	number("nodes", f.Nodes, func(n int64) { spec.Nodes = int(n) })
	number("gpus_per_node", f.GPUs, func(n int64) { spec.GPUsPerNode = int(n) })
	number("disk_gb", f.DiskGB, func(n int64) { spec.DiskGB = n })
	spec.GPU, spec.Image, spec.Name = query, strings.TrimSpace(f.Image), strings.TrimSpace(f.Name)
	if f.Scope != "" {
		spec.Network.Scope = market.Scope(f.Scope)
	}
	command, err := shellquote.Split(f.Command)
	if err != nil {
		bad.Add("command", "a quote is not closed")
	}
	spec.Command = append(spec.Command, command...)
	if b := strings.TrimSpace(f.Budget); b != "" {
		n, err := money.ParseNano(b)
		if err != nil {
			bad.Add("budget", "%s", err)
		}
		spec.Budget = &n
	}
	err = spec.Validate()
	if f := fault.From(err); f != nil && len(f.Fields) > 0 {
		bad = append(bad, f.Fields...)
	} else if err != nil {
		return spec, err
	}
	return spec, bad.Err()
}

// explain turns a NoCapacity fault into the page's table of constraints and ways out.
func explain(err error, m view.Market) *view.Explain {
	f := fault.From(err)
	e := &view.Explain{Title: "Nothing fits right now."}
	steps, _ := f.Extra["explain"].([]market.Exclusion)
	for _, x := range steps {
		e.Steps = append(e.Steps, view.ExplainStep{Constraint: x.Constraint, Excluded: x.Excluded, Left: x.Left})
	}
	if len(steps) > 0 {
		e.Looked = steps[0].Excluded + steps[0].Left
	}
	e.Title = fmt.Sprintf("No placement for %s nodes × %s GPUs. %d hosts were looked at; here is where they went.", m.Spec.Nodes, m.Spec.GPUs, e.Looked)
	relaxations, _ := f.Extra["relaxations"].([]market.Relaxation)
	for _, r := range relaxations {
		x := view.Relaxation{Change: strings.TrimSpace(r.From + " → " + r.To), Rate: r.Rate}
		if r.To == "" {
			x.Change = "without " + r.From
		}
		if q, ok := r.Value.(string); ok && r.Field == "gpu" {
			x.Apply = "/offers?" + url.Values{"q": {q}}.Encode()
		}
		e.Relaxations = append(e.Relaxations, x)
	}
	return e
}

func (s *Web) quoteOf(v *visit, text string) (market.Quote, error) {
	q, err := id.Parse[id.Quote](text)
	if err != nil {
		return market.Quote{}, fault.New(fault.NotFound, "no such quote")
	}
	return s.Market.GetQuote(v.r.Context(), v.who.Org, q)
}

// showQuote puts a quote beside the offers.
func (s *Web) showQuote(m *view.Market, q market.Quote) {
	left := q.ExpiresAt.Sub(s.Now())
	box := &view.QuoteBox{
		ID: q.ID.String(), Rate: q.Placement.Rate, GPUs: q.Spec.GPUs(),
		Left: max(left, 0), Total: q.ExpiresAt.Sub(q.CreatedAt), Expired: left <= 0 || q.State != market.QuoteHeld,
	}
	for _, n := range q.Placement.Nodes {
		box.Rows = append(box.Rows, view.QuoteRow{Rank: n.Rank, GPUs: len(n.GPUs), Host: n.HostName, Each: n.Price, Rate: n.Rate})
	}
	m.Quote = box
}

func (s *Web) returnQuote(v *visit) error {
	q, err := id.Parse[id.Quote](chi.URLParam(v.r, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "no such quote")
	}
	if _, err := s.Market.ReturnQuote(v.r.Context(), v.who.Org, q); err != nil {
		return err
	}
	return back(v, "/offers")
}
