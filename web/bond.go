package web

import (
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/view"
)

// bondShown is how many leases and payments the page of the bond shows.
const bondShown = 50

func (s *Web) bondPage(v *visit) error { return s.showBond(v, view.BondForm{}) }

func (s *Web) showBond(v *visit, form view.BondForm) error {
	b, err := s.Bonds.Standing(v.r.Context(), v.who, bondShown)
	if err != nil {
		return err
	}
	form.Once = newOnce()
	out := view.Bond{
		Currency:       s.Currency,
		Free:           b.Free,
		Reserved:       b.Reserved,
		Deposited:      b.Deposited,
		Depositable:    b.Depositable,
		Form:           form,
		Retain:         percent(b.Terms.RetainPPM),
		AcceptUnbonded: b.Terms.AcceptUnbonded,
		Limit:          b.Terms.LiabilityMax,
		Done: done(v, map[string]string{
			"deposit":  "The amount is in your bond.",
			"withdraw": "The amount has left your bond.",
			"terms":    "The terms are saved. They apply to leases rented from now on.",
		}),
	}
	out.Guess = guessLiability(v)
	for _, l := range b.Leases {
		row := view.BondLease{
			Cluster:  l.Cluster.String(),
			Host:     l.HostName,
			HostID:   l.Host.String(),
			Rank:     l.Rank,
			Since:    view.Clock(l.Since, s.Now()),
			Liable:   l.Liable,
			Reserved: l.Left,
		}
		if l.Ended != nil {
			row.Ended = view.Clock(*l.Ended, s.Now())
		}
		out.Leases = append(out.Leases, row)
	}
	for _, x := range b.Standby {
		out.Paid = append(out.Paid, view.BondPayment{
			Cluster:  x.Cluster.String(),
			Host:     x.HostName,
			Received: x.Received,
			Victim:   x.VictimRank,
			Culprit:  x.CulpritRank,
			For:      seconds(x.Millis),
			Gross:    x.Amount,
			Part:     x.HostPart,
			At:       view.Clock(x.At, s.Now()),
			Why:      x.Why,
		})
	}
	for _, x := range b.Relief {
		out.Paid = append(out.Paid, view.BondPayment{
			Cluster:  x.Cluster.String(),
			Host:     x.HostName,
			Received: true,
			Relief:   true,
			Victim:   x.Rank,
			For:      seconds(x.Millis),
			Part:     x.Amount,
			At:       view.Clock(x.At, s.Now()),
			Why:      x.Why,
		})
	}
	return s.render(v, view.BondPage(v.page("Gang bond", "hosts"), out))
}

// seconds is a time to the tenth of a second, as statements have it.
func seconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 1, 64) + " s" }

// percent is a share in millionths as percent, without zeros that nobody reads.
func percent(ppm int64) string { return strconv.FormatFloat(float64(ppm)/10_000, 'f', -1, 64) }

// guessLiability works out what a lease would be liable for in a gang that the visitor describes.
func guessLiability(v *visit) view.LiabilityGuess {
	g := view.LiabilityGuess{
		Nodes: strings.TrimSpace(v.r.FormValue("nodes")),
		Price: strings.TrimSpace(v.r.FormValue("price")),
	}
	if g.Nodes == "" && g.Price == "" {
		g.Nodes, g.Price = "8", "20.00"
	}
	nodes, err := strconv.Atoi(g.Nodes)
	if err != nil || nodes < 2 || nodes > 128 {
		g.NodesError = "Enter a number from 2 to 128."
	}
	price, err := money.ParseMicro(g.Price)
	if err != nil || price < 0 || price > 1_000_000*1_000_000 {
		g.PriceError = "Enter a price such as 20.00, at most a million."
	}
	if g.NodesError == "" && g.PriceError == "" {
		g.Amount = bond.LiabilityOf(nodes, price)
	}
	return g
}

func (s *Web) depositBond(v *visit) error {
	return s.moveBond(v, "deposit", func(n money.Nano) error {
		_, _, err := s.Bonds.Deposit(v.r.Context(), v.who, n, v.once("amount"))
		return err
	})
}

func (s *Web) withdrawBond(v *visit) error {
	return s.moveBond(v, "withdraw", func(n money.Nano) error {
		_, _, err := s.Bonds.Withdraw(v.r.Context(), v.who, n, v.once("amount"))
		return err
	})
}

// moveBond moves an amount into the bond or out of it, once for each form.
func (s *Web) moveBond(v *visit, act string, move func(money.Nano) error) error {
	form := view.BondForm{Act: act, Amount: strings.TrimSpace(v.r.FormValue("amount"))}
	amount, err := money.ParseNano(form.Amount)
	if err != nil {
		err = fault.InvalidField("amount", "is not an amount: enter a number such as 25.00")
	} else {
		err = move(amount)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.Error = view.Sentence(first(errs, "amount", ""))
			return s.showBond(v, form)
		})
	}
	return back(v, "/hosts/bond?done="+act)
}

func (s *Web) setBondTerms(v *visit) error {
	form := view.BondForm{
		Act:    "terms",
		Retain: strings.TrimSpace(v.r.FormValue("retain")),
		Limit:  strings.TrimSpace(v.r.FormValue("limit")),
		Accept: v.r.FormValue("accept_unbonded") != "",
	}
	var bad fault.Fields
	// Percent with up to four decimals are millionths.
	retain, err := money.ParseMicro(form.Retain)
	if err != nil || retain < 0 || retain > 100*1_000_000 || int64(retain)%100 != 0 {
		bad.Add("retain", "is a number from 0 to 100")
	}
	limit, err := limitOf(form.Limit)
	if err != nil {
		bad.Add("limit", "is an amount such as 25.00; leave it empty for no limit")
	}
	if err = bad.Err(); err == nil {
		ppm := int64(retain) / 100
		_, err = s.Bonds.SetTerms(v.r.Context(), v.who,
			bond.TermsChange{RetainPPM: &ppm, AcceptUnbonded: &form.Accept, LiabilityMax: &limit})
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			form.RetainError, form.LimitError = view.Sentence(first(errs, "retain", "retain_ppm", "")),
				view.Sentence(first(errs, "limit", "gang_liability_max"))
			return s.showBond(v, form)
		})
	}
	return back(v, "/hosts/bond?done=terms#terms")
}

// limitOf reads a limit; an empty field is none.
func limitOf(text string) (*money.Nano, error) {
	if text == "" {
		return nil, nil
	}
	n, err := money.ParseNano(text)
	if err != nil || n < 0 {
		return nil, fault.New(fault.Invalid, "is not an amount")
	}
	return &n, nil
}

// limitHost sets the most that one lease of a host may be liable for.
func (s *Web) limitHost(v *visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(v.r.FormValue("gang_liability_max"))
	limit, err := limitOf(text)
	if err != nil {
		err = fault.InvalidField("gang_liability_max", "is an amount such as 25.00; leave it empty for no limit of its own")
	} else {
		_, err = s.Bonds.SetHostLiability(v.r.Context(), v.who, h, limit)
	}
	if err != nil {
		return s.again(v, err, func(errs map[string]string) error {
			return s.showHost(v, h, hostForms{gang: view.HostGang{
				Typed: true,
				Limit: text,
				Error: view.Sentence(first(errs, "gang_liability_max", "")),
			}})
		})
	}
	return back(v, "/hosts/"+h.String()+"#gang")
}

// hostGang says what a host is liable for in gangs. rate is what its own node costs per hour.
func (s *Web) hostGang(v *visit, h id.Host, rate money.Micro, typed view.HostGang) (view.HostGang, error) {
	b, err := s.Bonds.Standing(v.r.Context(), v.who, 0)
	if err != nil {
		return view.HostGang{}, err
	}
	out := typed
	out.ID, out.Currency, out.Bond, out.Most = h.String(), s.Currency, b.Free+b.Reserved, b.Free+b.Reserved
	lower := func(limit *money.Nano, by string) {
		if limit != nil && *limit < out.Most {
			out.Most, out.By = *limit, by
		}
	}
	lower(b.Terms.LiabilityMax, "the limit of all your hosts")
	for _, x := range b.Hosts {
		if x.Host == h {
			lower(&x.Limit, "its own limit")
			if !out.Typed {
				out.Limit = x.Limit.Plain()
			}
		}
	}
	if rate > 0 {
		out.Example, out.Rate = bond.LiabilityOf(8, rate), rate
	}
	return out, nil
}

// bondEvidence shows what the suspensions of a gang rest on.
func (s *Web) bondEvidence(v *visit) error {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.r, "id"))
	if err != nil || cl.IsZero() {
		return fault.New(fault.NotFound, "no gang with a host of yours has this id")
	}
	rows, err := s.Bonds.Suspensions(v.r.Context(), v.who, cl)
	if err != nil {
		return err
	}
	out := view.BondEvidence{Cluster: cl.String()}
	for _, x := range rows {
		out.Rows = append(out.Rows, suspensionRow(x))
	}
	return s.render(v, view.BondEvidencePage(v.page("Suspensions of a gang", "hosts"), out))
}

func suspensionRow(x bond.Suspension) view.Suspension {
	const stamp = "15:04:05.000"
	row := view.Suspension{
		Day:    x.From.Format("2 January 2006"),
		From:   x.From.Format(stamp),
		To:     x.To.Format(stamp),
		For:    seconds(x.Millis()),
		Why:    x.Why,
		Blamed: len(x.Culprits) > 0,
	}
	for _, e := range x.Evidence {
		row.Evidence = append(row.Evidence, view.EvidenceRow{
			From: e.From.Format(stamp),
			To:   e.To.Format(stamp),
			For:  seconds(e.To.Sub(e.From).Milliseconds()),
			What: evidenceWords(e),
		})
	}
	return row
}

func evidenceWords(e bond.Evidence) string {
	rank := "Rank " + strconv.Itoa(e.Rank)
	switch e.Kind {
	case "missing_reports":
		return rank + ": its host's reports are missing"
	case "late_reports":
		return rank + ": its host's reports came late"
	case "not_well":
		return rank + ": its host reported that it was not well"
	case "not_proven":
		return rank + ": no report and no signed segment says that it was up"
	case "did_not_hear":
		return rank + ": its host signed that it heard nothing of rank " + strconv.Itoa(*e.Peer)
	}
	return rank + ": " + strings.ReplaceAll(e.Kind, "_", " ")
}
