package hosts

import (
	"slices"
	"strings"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// severalActs are what the fleet page does with several hosts at once.
var severalActs = []SeveralAct{
	{Name: "price", Title: "Set the price of %s", Button: "Set the price", Done: "Price set",
		Consequence: "The price is for new rentals. Running ones keep the price that they were rented at."},
	{Name: "drain", Title: "Drain %s", Button: "Drain now", Done: "Drained",
		Consequence: "No new rentals start. Running rentals continue to their end."},
	{Name: "resume", Title: "Resume %s", Button: "Resume now", Done: "Resumed",
		Consequence: "They are listed again."},
}

// onSeveral does one thing with several hosts. The first request only shows what would happen to each; the one that
// confirms does it, and shows what became of each. A host that refuses does not hold up the others.
func (s *Pages) onSeveral(v *page.Visit) error {
	if err := v.R.ParseForm(); err != nil {
		return fault.New(fault.Invalid, "the form could not be read")
	}
	form := v.R.PostForm
	i := slices.IndexFunc(severalActs, func(a SeveralAct) bool { return a.Name == form.Get("act") })
	if i < 0 {
		return fault.New(fault.Invalid, "choose what to do with the hosts")
	}
	out := Several{Act: severalActs[i], Currency: s.Currency, Price: strings.TrimSpace(form.Get("price")),
		Model: form.Get("gpu_model"), Confirmed: form.Get("confirm") == "yes"}
	ids := form["id"]
	if len(ids) > hostsPerPage {
		ids = ids[:hostsPerPage] // no page lists more
	}
	chosen, offers, err := s.chosen(v, ids)
	if err != nil {
		return err
	}
	out.Models = modelsOf(offers)
	if out.Model == "" && len(out.Models) == 1 {
		out.Model = out.Models[0]
	}
	var price money.Micro
	if out.Confirmed && out.Act.Name == "price" {
		if price, err = money.ParseMicro(out.Price); err != nil {
			out.Confirmed, out.PriceError, v.Status = false, err.Error(), fault.Invalid.HTTPStatus()
		}
	}
	for _, d := range chosen {
		out.Lines = append(out.Lines, s.onOne(v, out, d, offers[d.ID], price))
	}
	return s.Render(v, SeveralPage(v.Page(out.title(), "hosts"), out))
}

// chosen reads the hosts of a form that are the visitor's, and their offers.
func (s *Pages) chosen(v *page.Visit, ids []string) ([]host.Detail, map[id.Host][]client.OwnOffer, error) {
	var list []host.Detail
	var known []id.Host
	for _, text := range ids {
		h, err := id.Parse[id.Host](text)
		if err != nil || slices.Contains(known, h) {
			continue
		}
		d, err := s.Hosts.Get(v.R.Context(), v.Who, h)
		if err != nil {
			return nil, nil, err
		}
		list, known = append(list, d), append(known, h)
	}
	if len(known) == 0 {
		return nil, nil, nil
	}
	offers, err := s.Market.OffersOf(v.R.Context(), known...)
	return list, offers, err
}

// modelsOf returns the GPU models of the offers, sorted.
func modelsOf(offers map[id.Host][]client.OwnOffer) (models []string) {
	for _, list := range offers {
		for _, o := range list {
			if !slices.Contains(models, o.GPUModel) {
				models = append(models, o.GPUModel)
			}
		}
	}
	slices.Sort(models)
	return models
}

// onOne does it with one host, or only says what would happen.
func (s *Pages) onOne(v *page.Visit, out Several, d host.Detail, offers []client.OwnOffer,
	price money.Micro) SeveralLine {
	line := SeveralLine{ID: d.ID.String(), Name: d.Name, State: hostState(d.Host, s.Now()), Now: pricesText(offers)}
	if !out.Confirmed {
		line.Result = line.Now
		return line
	}
	var err error
	if out.Act.Name == "price" {
		err = s.Market.ChangeHost(v.R.Context(), v.Who, d.ID, market.HostChange{GPUModel: out.Model,
			Terms: market.Terms{Price: &price}})
		line.Result = view.Price(price) + " per GPU-hour"
	} else {
		_, _, err = s.Hosts.Act(v.R.Context(), v.Who, d.ID, host.Action{Name: out.Act.Name}, idem.Request{})
		line.Result = out.Act.Done
	}
	switch f := fault.From(err); {
	case err == nil:
	case f == nil || f.Kind == fault.Internal:
		s.Log.ErrorContext(v.R.Context(), "act on several hosts", "host", d.ID, "act", out.Act.Name, "err", err)
		line.Failed, line.Result = true, "Something went wrong. Try again in a moment."
	default:
		line.Failed, line.Result = true, view.Sentence(f.Message)
	}
	if after, err := s.Hosts.Get(v.R.Context(), v.Who, d.ID); err == nil {
		line.State = hostState(after.Host, s.Now())
	}
	return line
}

// pricesText describes the prices of a host's offers.
func pricesText(offers []client.OwnOffer) string {
	var out []string
	for _, o := range offers {
		price := "no price"
		if o.Price != nil {
			price = view.Price(*o.Price)
		}
		if len(offers) > 1 {
			price = view.ModelName(o.GPUModel) + " " + price
		}
		out = append(out, price)
	}
	return strings.Join(out, ", ")
}
