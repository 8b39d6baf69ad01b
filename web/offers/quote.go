package offers

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/kballard/go-shellquote"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/cluster"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// makeQuote holds GPUs for the cluster of the form, and shows the quote, or why there is none.
func (s *Pages) makeQuote(v *page.Visit) error {
	m := Market{Query: v.R.FormValue("q"), Spec: specForm(v)}
	if name := v.R.PostFormValue("template"); name != "" {
		if err := s.fillTemplate(v, &m, name); err != nil {
			return err
		}
	}
	quote, err := s.quoteFor(v, m)
	switch kind := fault.KindOf(err); kind {
	case "":
		return page.Back(v, "/offers?"+url.Values{"quote": {quote.ID.String()}, "q": {m.Query}}.Encode())
	case fault.NoCapacity:
		m.Explain = viewExplain(err, m)
		v.Status = kind.HTTPStatus()
		return s.showMarket(v, m)
	default:
		return s.Again(v, err, func(errs map[string]string) error {
			m.Spec.Errors = errs
			if kind == fault.InsufficientFunds {
				m.Spec.NeedsCredit = true
			}
			return s.showMarket(v, m)
		})
	}
}

func (s *Pages) quoteFor(v *page.Visit, m Market) (market.Quote, error) {
	base, err := s.base(v, &m.Spec)
	if err != nil {
		return market.Quote{}, err
	}
	spec, err := specOver(base, m.Spec, m.Query, true)
	if err != nil {
		return market.Quote{}, err
	}
	q, _, err := s.Market.Quote(v.R.Context(), v.Who, spec, idem.Request{})
	return q, err
}

// viewExplain turns a NoCapacity fault into a table of the constraints and their relaxations.
func viewExplain(err error, m Market) *Explain {
	f := fault.From(err)
	e := &Explain{Title: f.Message}
	steps, _ := f.Extra["explain"].([]client.Exclusion)
	for _, x := range steps {
		e.Steps = append(e.Steps, ExplainStep{Constraint: x.Constraint, Excluded: x.Excluded, Left: x.Left})
	}
	hosts, planned := f.Extra["hosts"].(int)
	if !planned { // GPUs fit, but other quotes were faster each time
		return e
	}
	if e.Looked = hosts; len(steps) > 0 {
		e.Looked = steps[0].Excluded + steps[0].Left
	}
	e.Title = fmt.Sprintf("No placement for %s × %s. %s.", counted(m.Spec.Nodes, "node"),
		counted(m.Spec.GPUs, "GPU"), looked(e.Looked))
	e.Unmeasured, _ = f.Extra["unmeasured"].([]string)
	relaxations, _ := f.Extra["relaxations"].([]client.Relaxation)
	for _, r := range relaxations {
		x := Relaxation{
			Field:  strings.ReplaceAll(r.Field, "_", " "),
			Change: r.To + " instead of " + r.From,
			Rate:   r.Rate,
			Apply:  relaxed(r, m),
		}
		if r.To == "" {
			x.Change = "without " + r.From
		}
		e.Relaxations = append(e.Relaxations, x)
	}
	return e
}

// relaxed returns the URL of the page with a relaxation applied; "" if the form has no such field.
func relaxed(r client.Relaxation, m Market) string {
	query, form, value := m.Query, m.Spec, fmt.Sprint(r.Value)
	switch r.Field {
	case "gpu":
		query = value
	case "nodes":
		form.Nodes = value
	case "gpus_per_node":
		form.GPUs = value
	case "disk_gb":
		form.DiskGB = value
	case "scratch_gb":
		form.ScratchGB = value
	case "network.scope":
		form.Scope = value
	case "runtime":
		form.Runtime = value
	case "disk_limited":
		form.DiskLimited = value == "true"
	default:
		return ""
	}
	return formLink(query, form)
}

func (s *Pages) quoteOf(v *page.Visit, text string) (market.Quote, error) {
	q, err := id.Parse[id.Quote](text)
	if err != nil {
		return market.Quote{}, fault.New(fault.NotFound, "quote not found")
	}
	return s.Market.GetQuote(v.R.Context(), v.Who, q)
}

// showQuote adds a quote to the page.
func (s *Pages) showQuote(v *page.Visit, m *Market, q market.Quote) error {
	left := q.ExpiresAt.Sub(s.Now())
	box := &QuoteBox{
		ID: q.ID.String(), Rate: q.Placement.Rate, GPUs: q.Spec.GPUs(),
		Left: max(left, 0), Total: q.ExpiresAt.Sub(q.CreatedAt), Expired: left <= 0 || q.State != market.QuoteHeld,
		Again: "/offers?again=" + q.ID.String() + "#spec", Spec: summary(q.Spec, s.Currency),
	}
	for _, n := range q.Placement.Nodes {
		box.Rows = append(box.Rows, QuoteRow{
			Rank: n.Rank,
			GPUs: len(n.GPUs),
			Host: n.HostName,
			Each: n.Price,
			Rate: n.Rate,
		})
	}
	if gbps := q.Spec.Network.MinGbps; gbps > 0 && q.Spec.Nodes > 1 {
		hosts := make([]id.Host, len(q.Placement.Nodes))
		for i, n := range q.Placement.Nodes {
			hosts[i] = n.Host
		}
		if names := s.Market.Unmeasured(hosts); len(names) > 0 {
			box.Unmeasured = fmt.Sprintf("The network of %s has not been measured yet. The ranks measure it before billing "+
				"starts; if it is slower than %g Gbit/s, the start fails and costs nothing.", strings.Join(names, ", "), gbps)
		}
	}
	mounts, err := s.mountSummary(v, q.Spec.Mounts)
	if err != nil {
		return err
	}
	if len(mounts) > 0 {
		box.Spec, box.Storage = append(box.Spec, mounts...), s.StoragePrice()
	}
	m.Quote = box
	return nil
}

// returnQuote gives the GPUs back and shows the form as the quote was asked for.
func (s *Pages) returnQuote(v *page.Visit) error {
	q, err := id.Parse[id.Quote](chi.URLParam(v.R, "id"))
	if err != nil {
		return fault.New(fault.NotFound, "quote not found")
	}
	if _, err := s.Market.ReturnQuote(v.R.Context(), v.Who, q); err != nil {
		return err
	}
	return page.Back(v, "/offers?again="+q.String()+"#spec")
}

// summary returns what a quote is for, field by field, without what the placement shows.
func summary(s market.Spec, currency string) []SummaryRow {
	rows := []SummaryRow{{"Image", s.Image}}
	add := func(name, value string) {
		if value != "" {
			rows = append(rows, SummaryRow{name, value})
		}
	}
	add("Entry point", shellquote.Join(s.Entrypoint...))
	command := shellquote.Join(s.Command...)
	if command == "" && len(s.Entrypoint) == 0 {
		command = "the image's own"
	}
	add("Command", command)
	add("User", s.User)
	add("Environment", strings.Join(slices.Sorted(maps.Keys(s.Env)), " "))
	add("Ports", portsText(s.Ports))
	add("Disk", fmt.Sprintf("%d GB per node", s.DiskGB))
	if s.ScratchGB > 0 {
		add("Scratch", fmt.Sprintf("%d GB per node", s.ScratchGB))
	}
	if s.MaxDuration != nil {
		add("Stops after", fmt.Sprintf("%.4g h of running time", float64(*s.MaxDuration)/3600))
	}
	if s.Budget != nil {
		add("Budget", view.Cents(*s.Budget)+" "+currency)
	}
	return rows
}

// counted returns a number as typed with its noun.
func counted(n, noun string) string {
	if n == "1" {
		return n + " " + noun
	}
	return n + " " + noun + "s"
}

func looked(hosts int) string {
	if hosts == 1 {
		return "1 host was looked at"
	}
	return fmt.Sprintf("%d hosts were looked at", hosts)
}

// rent turns the held quote into a cluster. The quote is the idempotency key: a form that is posted twice rents once.
func (s *Pages) rent(v *page.Visit) error {
	quote, err := s.quoteOf(v, v.R.FormValue("quote"))
	if err != nil {
		return err
	}
	if !quote.Cluster.IsZero() {
		return page.Back(v, "/clusters/"+quote.Cluster.String())
	}
	c, _, err := s.Clusters.Rentals.Rent(v.R.Context(), v.Who, cluster.RentRequest{
		Quote: quote.ID,
		Over:  json.RawMessage(`{}`),
	}, idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			if errs[""] == "" && fault.From(err).Kind == fault.Conflict { // about a field, in a sentence
				errs[""] = fault.From(err).Message
			}
			errs[""] = page.First(errs, "", "mounts")
			m := Market{Query: quote.Spec.GPU, Spec: SpecForm{Errors: errs}}
			if err := s.showQuote(v, &m, quote); err != nil {
				return err
			}
			return s.showMarket(v, m)
		})
	}
	return page.Back(v, "/clusters/"+c.ID.String())
}
