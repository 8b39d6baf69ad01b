package front

import (
	"net/url"

	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/fleet/market/query"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// home shows visitors what Muster is. Members of an organisation that only sells get its hosts; others get their first
// steps, and their clusters once those are done.
func (s *Pages) home(v *page.Visit) error {
	if !v.SignedIn() {
		l := Landing{Start: s.startLines(v.SignedIn())}
		var err error
		if l.Prices, err = s.prices(v); err != nil {
			return err
		}
		return s.Render(v, LandingPage(v.Page("GPU clusters, billed by the second", "home"), l))
	}
	p := v.Page("Get started", "home")
	if p.Wallet.Sells {
		return page.Back(v, "/hosts")
	}
	steps, err := s.FirstSteps(v)
	if err != nil {
		return err
	}
	if !view.StepsLeft(steps) {
		return page.Back(v, "/clusters")
	}
	return s.Render(v, WelcomePage(p, steps, s.startLines(v.SignedIn())))
}

// pricing shows the prices of all models on the market.
func (s *Pages) pricing(v *page.Visit) error {
	prices, err := s.prices(v)
	if err != nil {
		return err
	}
	return s.Render(v, PricingPage(v.Page("Pricing", "pricing"), prices))
}

// livePrices returns the prices of the front page alone, for a page that is open.
func (s *Pages) livePrices(v *page.Visit) error {
	prices, err := s.prices(v)
	if err != nil {
		return err
	}
	return s.Render(v, LivePrices(prices))
}

func (s *Pages) cli(v *page.Visit) error {
	return s.Render(v, CLIPage(v.Page("Command line", ""), s.startLines(v.SignedIn())))
}

// prices returns the prices of all models that have a free GPU. On an empty market there are none.
func (s *Pages) prices(v *page.Visit) (Prices, error) {
	list, err := s.Market.Prices(v.R.Context())
	if err != nil {
		return Prices{}, err
	}
	out := Prices{Currency: s.Currency, At: s.Now().UTC().Format("15:04:05")}
	for _, p := range list {
		out.GPUs += p.GPUsFree
		out.Rows = append(out.Rows, PriceRow{ModelPrice: p, Offers: offersOf(p)})
	}
	return out, nil
}

// offersOf returns the link to a model's offers.
func offersOf(p market.ModelPrice) string {
	return "/offers?" + url.Values{"q": {modelTerm(p.Model)}}.Encode()
}

// modelTerm returns the query for a model.
func modelTerm(model string) string {
	empty, _ := query.Parse("") // always valid
	q, err := empty.Set("gpu_model", "=", model)
	if err != nil {
		return ""
	}
	return q.String()
}
