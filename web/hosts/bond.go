package hosts

import (
	"strconv"
	"strings"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/internal/billing/bond"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

// bondShown is how many leases and payments the page of the bond shows.
const bondShown = 50

func (s *Pages) bondPage(v *page.Visit) error { return s.showBond(v, BondForm{}) }

func (s *Pages) showBond(v *page.Visit, form BondForm) error {
	b, err := s.Bonds.Standing(v.R.Context(), v.Who, bondShown)
	if err != nil {
		return err
	}
	form.Once = page.NewOnce()
	out := Bond{
		Currency:       s.Currency,
		Free:           b.Free,
		Reserved:       b.Reserved,
		Deposited:      b.Deposited,
		Depositable:    b.Depositable,
		Claimed:        b.Claimed,
		Form:           form,
		Retain:         percent(b.Terms.RetainPPM),
		AcceptUnbonded: b.Terms.AcceptUnbonded,
		Limit:          b.Terms.LiabilityMax,
		Done: page.Done(v, map[string]string{
			"deposit":  "The amount is in your bond.",
			"withdraw": "The amount has left your bond.",
			"terms":    "The terms are saved. They apply to leases rented from now on.",
		}),
	}
	out.Guess = guessLiability(v)
	for _, l := range b.Leases {
		row := BondLease{
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
		out.Paid = append(out.Paid, BondPayment{
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
		out.Paid = append(out.Paid, BondPayment{
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
	return s.Render(v, BondPage(v.Page("Gang bond", "hosts"), out))
}

// seconds formats milliseconds as seconds with one decimal, as statements do.
func seconds(ms int64) string { return strconv.FormatFloat(float64(ms)/1000, 'f', 1, 64) + " s" }

// percent formats a share in millionths as percent, without trailing zeros.
func percent(ppm int64) string { return strconv.FormatFloat(float64(ppm)/10_000, 'f', -1, 64) }

// guessLiability computes what a lease would be liable for in the gang that the form describes.
func guessLiability(v *page.Visit) LiabilityGuess {
	g := LiabilityGuess{
		Nodes: strings.TrimSpace(v.R.FormValue("nodes")),
		Price: strings.TrimSpace(v.R.FormValue("price")),
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

func (s *Pages) depositBond(v *page.Visit) error {
	return s.moveBond(v, "deposit", func(n money.Nano) error {
		_, _, err := s.Bonds.Deposit(v.R.Context(), v.Who, n, v.Once("amount"))
		return err
	})
}

func (s *Pages) withdrawBond(v *page.Visit) error {
	return s.moveBond(v, "withdraw", func(n money.Nano) error {
		_, _, err := s.Bonds.Withdraw(v.R.Context(), v.Who, n, v.Once("amount"))
		return err
	})
}

// moveBond moves an amount into or out of the bond, once for each form.
func (s *Pages) moveBond(v *page.Visit, act string, move func(money.Nano) error) error {
	form := BondForm{Act: act, Amount: strings.TrimSpace(v.R.FormValue("amount"))}
	amount, err := money.ParseNano(form.Amount)
	if err != nil {
		err = fault.InvalidField("amount", "is not an amount: enter a number such as 25.00")
	} else {
		err = move(amount)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.Error = view.Sentence(page.First(errs, "amount", ""))
			return s.showBond(v, form)
		})
	}
	return page.Back(v, "/hosts/bond?done="+act)
}

func (s *Pages) setBondTerms(v *page.Visit) error {
	form := BondForm{
		Act:    "terms",
		Retain: strings.TrimSpace(v.R.FormValue("retain")),
		Limit:  strings.TrimSpace(v.R.FormValue("limit")),
		Accept: v.R.FormValue("accept_unbonded") != "",
	}
	var bad fault.Fields
	// A percentage with up to four decimals is a whole number of millionths.
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
		_, err = s.Bonds.SetTerms(v.R.Context(), v.Who,
			bond.TermsChange{RetainPPM: &ppm, AcceptUnbonded: &form.Accept, LiabilityMax: &limit})
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			form.RetainError, form.LimitError = view.Sentence(page.First(errs, "retain", "retain_ppm", "")),
				view.Sentence(page.First(errs, "limit", "gang_liability_max"))
			return s.showBond(v, form)
		})
	}
	return page.Back(v, "/hosts/bond?done=terms#terms")
}

// limitOf parses a limit; nil if the field is empty.
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
func (s *Pages) limitHost(v *page.Visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	text := strings.TrimSpace(v.R.FormValue("gang_liability_max"))
	limit, err := limitOf(text)
	if err != nil {
		err = fault.InvalidField("gang_liability_max", "is an amount such as 25.00; leave it empty for no limit of its own")
	} else {
		_, err = s.Bonds.SetHostLiability(v.R.Context(), v.Who, h, limit)
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showHost(v, h, hostForms{gang: HostGang{
				Typed: true,
				Limit: text,
				Error: view.Sentence(page.First(errs, "gang_liability_max", "")),
			}})
		})
	}
	return page.Back(v, "/hosts/"+h.String()+"#gang")
}

// hostGang describes a host's liability in gangs. rate is the price of all its GPUs per hour.
func (s *Pages) hostGang(v *page.Visit, h id.Host, rate money.Micro, typed HostGang) (HostGang, error) {
	b, err := s.Bonds.Standing(v.R.Context(), v.Who, 0)
	if err != nil {
		return HostGang{}, err
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

// bondEvidence shows the evidence for the suspensions of a gang.
func (s *Pages) bondEvidence(v *page.Visit) error {
	cl, err := id.Parse[id.Cluster](chi.URLParam(v.R, "id"))
	if err != nil || cl.IsZero() {
		return fault.New(fault.NotFound, "no gang with a host of yours has this id")
	}
	rows, err := s.Bonds.Suspensions(v.R.Context(), v.Who, cl)
	if err != nil {
		return err
	}
	out := BondEvidence{Cluster: cl.String()}
	for _, x := range rows {
		out.Rows = append(out.Rows, suspensionRow(x))
	}
	return s.Render(v, BondEvidencePage(v.Page("Suspensions of a gang", "hosts"), out))
}

func suspensionRow(x bond.Suspension) Suspension {
	const stamp = "15:04:05.000"
	row := Suspension{
		Day:    x.From.Format("2 January 2006"),
		From:   x.From.Format(stamp),
		To:     x.To.Format(stamp),
		For:    seconds(x.Millis()),
		Why:    x.Why,
		Blamed: len(x.Culprits) > 0,
	}
	for _, e := range x.Evidence {
		row.Evidence = append(row.Evidence, EvidenceRow{
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
		return rank + ": its host signed that it received nothing from rank " + strconv.Itoa(*e.Peer)
	}
	return rank + ": " + strings.ReplaceAll(e.Kind, "_", " ")
}
