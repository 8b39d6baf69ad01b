package offers

import (
	"github.com/go-chi/httprate"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/web/page"
)

// estimate shows the price that the cluster of the form would have now, or why nothing fits. It claims nothing and
// needs no account. The form is also accepted as a link, so that an estimate can be shared.
func (s *Pages) estimate(v *page.Visit) error {
	m := Market{Query: v.R.FormValue("q"), Spec: specForm(v)}
	if name := v.R.PostFormValue("template"); name != "" {
		if err := s.fillTemplate(v, &m, name); err != nil {
			return err
		}
	}
	plan, err := s.estimateFor(v, m)
	switch kind := fault.KindOf(err); kind {
	case "":
		m.Estimate = estimateBox(plan)
		return s.showMarket(v, m)
	case fault.NoCapacity:
		m.Explain = viewExplain(err, m)
		v.Status = kind.HTTPStatus()
		return s.showMarket(v, m)
	default:
		return s.Again(v, err, func(errs map[string]string) error {
			m.Spec.Errors = errs
			return s.showMarket(v, m)
		})
	}
}

func (s *Pages) estimateFor(v *page.Visit, m Market) (market.Placement, error) {
	spec, err := specOf(m.Spec, m.Query, false)
	if err != nil {
		return market.Placement{}, err
	}
	return s.Market.Estimate(v.R.Context(), httprate.CanonicalizeIP(page.Address(v.R)), spec)
}

// estimateBox counts the nodes of a placement by model and price: an estimate names no hosts, because others may rent
// them first.
func estimateBox(p market.Placement) *EstimateBox {
	box := &EstimateBox{Rate: p.Rate}
	for _, n := range p.Nodes {
		box.GPUs += len(n.GPUs)
		if last := len(box.Rows) - 1; last >= 0 && box.Rows[last].Model == n.Model && box.Rows[last].Each == n.Price {
			box.Rows[last].Nodes++
			continue
		}
		box.Rows = append(box.Rows, EstimateRow{Nodes: 1, GPUs: len(n.GPUs), Model: n.Model, Each: n.Price})
	}
	return box
}
