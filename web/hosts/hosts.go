package hosts

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"

	"github.com/musterhq/muster/client"
	"github.com/musterhq/muster/internal/billing/statement"
	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/fleet/host"
	"github.com/musterhq/muster/internal/fleet/market"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/web/page"
	"github.com/musterhq/muster/web/view"
)

const hostsPerPage = 200

func (s *Pages) hosts(v *page.Visit) error { return s.showHosts(v, Hosts{}) }

func (s *Pages) showHosts(v *page.Visit, h Hosts) error {
	ctx := v.R.Context()
	h.Currency = s.Currency
	list, err := s.Hosts.List(ctx, v.Who, id.Host{}, hostsPerPage, false)
	if err != nil {
		return err
	}
	ids := make([]id.Host, len(list))
	for i, d := range list {
		ids[i] = d.ID
	}
	offers, err := s.Market.OffersOf(ctx, ids...)
	if err != nil {
		return err
	}
	for _, d := range list {
		row := HostRow{
			ID: d.ID.String(), Name: d.Name, Region: d.Region, State: hostState(d.Host, s.Now()),
			Formation: gpuSquares(d.GPUs), Summary: gpuSummary(d.GPUs), LastReport: lastReport(d.Host, s.Now()),
		}
		for _, o := range offers[d.ID] {
			if o.Price != nil {
				row.Price = view.PerHour(*o.Price)
			}
		}
		earned, err := s.Statements.HostEarnings(ctx, v.Who.Org, d.ID)
		if err != nil {
			return err
		}
		row.Earned = earned.Total
		h.Rows = append(h.Rows, row)
		h.Fleet.add(d, offers[d.ID], earned, s.Now())
	}
	return s.Render(v, HostsPage(v.Page("Hosts", "hosts"), h))
}

// add adds a host to the totals. Days of earnings are in the organisation's time zone.
func (f *Fleet) add(d host.Detail, offers []client.OwnOffer, earned statement.Earnings, now time.Time) {
	p := potentialOf(d, offers)
	f.GPUs += len(d.GPUs)
	f.Rented += p.leased
	f.Free += p.free
	f.EarningNow += p.now
	f.CouldEarn += p.could
	for _, day := range earned.Days {
		if day.Day == now.UTC().Format(time.DateOnly) {
			f.Today += day.Earned
		}
		if strings.HasPrefix(day.Day, now.UTC().Format("2006-01-")) {
			f.Month += day.Earned
		}
	}
}

func (s *Pages) enrollHost(v *page.Visit) error {
	f := EnrollForm{Name: v.R.FormValue("name"), Region: v.R.FormValue("region"), Fabric: v.R.FormValue("fabric")}
	e, _, err := s.Hosts.CreateEnrollment(v.R.Context(), v.Who, host.NewEnrollment{
		Name:   strings.TrimSpace(f.Name),
		Region: strings.TrimSpace(f.Region),
		Fabric: strings.TrimSpace(f.Fabric),
	}, idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			f.Errors = errs
			return s.showHosts(v, Hosts{Form: f})
		})
	}
	// Do not redirect: the token is a secret, is shown in this response only, and must not be in a URL.
	return s.showHosts(v, Hosts{Enrollment: &Enrollment{
		ID:       e.ID.String(),
		Token:    e.Token,
		Command:  s.EnrollCommand(e.Token),
		Expires:  "until " + view.Clock(e.ExpiresAt, s.Now()) + " UTC",
		Progress: enrollChecks(host.Enrolling{ExpiresAt: e.ExpiresAt}, false, s),
	}})
}

func (s *Pages) hostPage(v *page.Visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	return s.showHost(v, h, hostForms{})
}

func (s *Pages) hostOf(v *page.Visit) (id.Host, error) {
	h, err := id.Parse[id.Host](chi.URLParam(v.R, "id"))
	if err != nil {
		return h, fault.New(fault.NotFound, "host not found")
	}
	return h, nil
}

// hostForms are the refused forms of a host's page, as typed, with what is wrong with them.
type hostForms struct {
	trouble string     // why an action was refused
	offer   *OfferForm // terms of an offer
	channel string     // what is wrong with the agent's channel
	dataCap DataCap
	gang    HostGang
}

// showHost renders the page of a host.
func (s *Pages) showHost(v *page.Visit, hid id.Host, forms hostForms) error {
	out := Host{Error: forms.trouble}
	ctx, now := v.R.Context(), s.Now()
	d, err := s.Hosts.Get(ctx, v.Who, hid)
	if err != nil {
		return err
	}
	earned, err := s.Statements.HostEarnings(ctx, v.Who.Org, hid)
	if err != nil {
		return err
	}
	allOffers, err := s.Market.OffersOf(ctx, hid)
	if err != nil {
		return err
	}
	offers := allOffers[hid]
	out.ID, out.Name, out.Currency = d.ID.String(), d.Name, s.Currency
	out.Summary, out.Formation = gpuSummary(d.GPUs), gpuSquares(d.GPUs)
	out.State, out.LastReport = hostState(d.Host, now), lastReport(d.Host, now)
	out.Where = strings.TrimPrefix(d.FabricName+", "+d.Region, ", ")
	if out.Agent, err = s.hostAgent(ctx, d); err != nil {
		return err
	}
	out.ChannelError = forms.channel
	out.Problems, out.Facts, out.Notices = hostProblems(d), hostFacts(d), s.NoticesOf(ctx, v.Who, d.ID.String())
	out.Earned = earned.Total
	if len(earned.Days) > 0 && earned.Days[0].Day == now.UTC().Format(time.DateOnly) {
		out.EarnedToday = earned.Days[0].Earned
	}
	out.ByDay = view.NewColumns("Earned by day", s.Currency, now.UTC(), dayAmounts(earned.Days))
	for _, l := range earned.Leases {
		row := LeaseRow{
			ID:     l.Lease.String(),
			GPUs:   l.GPUs,
			Window: view.Clock(l.StartedAt, now),
			End:    "running",
			Billed: time.Duration(l.Seconds) * time.Millisecond,
			Earned: l.Earned,
		}
		if l.EndedAt != nil {
			row.End = view.Clock(*l.EndedAt, now)
		}
		out.Leases = append(out.Leases, row)
	}
	live, err := s.Hosts.Readings(ctx, d.GPUs)
	if err != nil {
		return err
	}
	history, err := s.Hosts.History(ctx, d.GPUs, now.Add(-clockSpan), now, clockStep)
	if err != nil {
		return err
	}
	for i, g := range d.GPUs {
		row := gpuRow(g, live[g.ID])
		row.addClock(history[i].Samples, now)
		if last, ok := d.Requalify[g.ID]; ok {
			row.Requalify = last.String()
			row.MayRequalify = row.MayRequalify && last.FinishedAt != nil
		}
		out.GPUs = append(out.GPUs, row)
	}
	earns := potentialOf(d, offers)
	out.EarningNow, out.CouldEarn = earns.now, earns.could
	out.FreeNote = fmt.Sprintf("%d leased, %d free of %d", earns.leased, earns.free, len(d.GPUs))
	for _, o := range offers {
		form := viewOffer(o)
		if forms.offer != nil && forms.offer.Model == o.GPUModel {
			form = *forms.offer
		}
		guide, err := s.Market.PriceGuide(ctx, v.Who, o.GPUModel)
		if err != nil {
			return err
		}
		form.Guide = viewGuide(guide, o.Price, s.Currency)
		out.Offers = append(out.Offers, form)
	}
	prices, err := s.Market.PriceHistory(ctx, v.Who, hid)
	if err != nil {
		return err
	}
	for _, p := range prices {
		out.Prices = append(out.Prices, PriceRow{
			At:     p.At.Format("2006-01-02 15:04:05"),
			Model:  view.ModelName(p.GPUModel),
			Price:  listedPrice(p.Price),
			Before: listedPrice(p.Before),
		})
	}
	traffic, err := s.Hosts.Traffic(ctx, v.Who, hid, 20)
	if err != nil {
		return err
	}
	for _, t := range traffic {
		out.Traffic = append(out.Traffic, TrafficRow{
			ID:        t.LeaseID.String(),
			Reported:  view.Clock(t.LastAt, now),
			Opened:    fmt.Sprint(t.Connections),
			Refused:   fmt.Sprint(t.Refused),
			Up:        view.Bytes(t.UpBytes),
			Down:      view.Bytes(t.DownBytes),
			RanksUp:   view.Bytes(t.OverlayUp),
			RanksDown: view.Bytes(t.OverlayDown),
			Suspect:   t.Refused > 0,
		})
	}
	if out.Data, err = s.hostData(v, hid, forms.dataCap); err != nil {
		return err
	}
	if out.Gang, err = s.hostGang(v, hid, listPrice(d, offers), forms.gang); err != nil {
		return err
	}
	if out.Reclaim, err = s.hostReclaim(v, d); err != nil {
		return err
	}
	for _, a := range d.Actions() {
		if a == "reclaim" {
			continue // has its own panel
		}
		out.Actions = append(out.Actions, hostAction(a))
	}
	return s.Render(v, HostPage(v.Page(d.Name, "hosts"), out))
}

// potential is what the GPUs of a host earn the operator per hour.
type potential struct {
	leased, free int         // GPUs
	now          money.Micro // of the leased GPUs
	could        money.Micro // if the free ones were rented, too
}

func potentialOf(d host.Detail, offers []client.OwnOffer) (p potential) {
	for _, g := range d.GPUs {
		for _, o := range offers {
			if o.GPUModel != g.Model || o.Price == nil {
				continue
			}
			part := money.Micro(money.Share(money.Nano(*o.Price), int64(o.HostSharePPM)))
			switch {
			case g.Claim == host.ForLease:
				p.leased++
				p.now += part
				p.could += part
			case g.Claim == "" && g.Present && g.Health == host.Healthy && g.InUse == "" && g.Contest.Offered():
				p.free++
				p.could += part
			}
		}
	}
	return p
}

func listedPrice(p *money.Micro) string {
	if p == nil {
		return "not listed"
	}
	return view.Price(*p)
}

func viewOffer(o client.OwnOffer) OfferForm {
	f := OfferForm{Model: o.GPUModel, MinGPUs: strconv.Itoa(o.MinGPUs)}
	if o.Price != nil {
		f.Price = view.Price(*o.Price)
	}
	if o.MaxDuration != nil {
		f.MaxHours = strconv.FormatFloat(float64(*o.MaxDuration)/3600, 'g', -1, 64)
	}
	return f
}

func hostAction(a string) view.Action {
	switch a {
	case "drain":
		return view.Action{
			Name:        a,
			Label:       "Drain",
			Consequence: "No new rentals start. Running rentals continue to their end.",
		}
	case "resume":
		return view.Action{Name: a, Label: "Resume", Consequence: "The host is listed again."}
	case "retire":
		return view.Action{
			Name:        a,
			Label:       "Retire",
			Confirm:     "Retire this host?",
			Consequence: "It leaves the market permanently and its keys are revoked. What it earned stays yours.",
		}
	}
	return view.Action{Name: a, Label: a}
}

func (s *Pages) actOnHost(v *page.Visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	act := host.Action{Name: v.R.FormValue("action"), GPU: v.R.FormValue("gpu")}
	_, _, err = s.Hosts.Act(v.R.Context(), v.Who, h, act, idem.Request{})
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showHost(v, h, hostForms{trouble: fault.From(err).Message})
		})
	}
	return page.Back(v, "/hosts/"+h.String())
}

func (s *Pages) setTerms(v *page.Visit) error {
	h, err := s.hostOf(v)
	if err != nil {
		return err
	}
	t, err := termsOf(v)
	if err == nil {
		err = s.Market.ChangeHost(v.R.Context(), v.Who, h, market.HostChange{GPUModel: v.R.FormValue("gpu_model"), Terms: t})
	}
	if err != nil {
		return s.Again(v, err, func(errs map[string]string) error {
			return s.showHost(v, h, hostForms{trouble: errs[""], offer: &OfferForm{
				Model: v.R.FormValue("gpu_model"), Price: v.R.FormValue("price_per_gpu_hour"), MinGPUs: v.R.FormValue("min_gpus"),
				MaxHours: v.R.FormValue("max_hours"), Errors: errs,
			}})
		})
	}
	return page.Back(v, "/hosts/"+h.String())
}

// maxHours keeps a number of hours far from the bounds of its type; the market has its own bound.
const maxHours = 1e6

// termsOf parses the form of an offer. All fields are optional but the number of GPUs.
func termsOf(v *page.Visit) (t market.Terms, err error) {
	var bad fault.Fields
	if p := strings.TrimSpace(v.R.FormValue("price_per_gpu_hour")); p == "" {
		t.Unlist = true
	} else if price, err := money.ParseMicro(p); err != nil {
		bad.Add("price_per_gpu_hour", "%s", err)
	} else {
		t.Price = &price
	}
	if n, err := strconv.Atoi(strings.TrimSpace(v.R.FormValue("min_gpus"))); err != nil {
		bad.Add("min_gpus", "Enter a whole number.")
	} else {
		t.MinGPUs = &n
	}
	var longest int64 // no limit
	if h := strings.TrimSpace(v.R.FormValue("max_hours")); h != "" {
		hours, err := strconv.ParseFloat(h, 64)
		if err != nil || !(hours >= 0 && hours <= maxHours) {
			bad.Add("max_duration", "Enter a number of hours such as 12 or 0.5, or leave it empty for no limit.")
		}
		longest = int64(math.Round(hours * 3600))
	}
	t.MaxDuration = &longest
	return t, bad.Err()
}

// dayAmounts converts days for the chart; it omits invalid dates.
func dayAmounts(days []statement.DayEarning) []view.DayAmount {
	var out []view.DayAmount
	for _, d := range days {
		if day, err := time.Parse(time.DateOnly, d.Day); err == nil {
			out = append(out, view.DayAmount{Day: day, Amount: d.Earned})
		}
	}
	return out
}

// listPrice returns the price of all GPUs of a host per hour.
func listPrice(d host.Detail, offers []client.OwnOffer) (rate money.Micro) {
	for _, g := range d.GPUs {
		for _, o := range offers {
			if o.GPUModel == g.Model && o.Price != nil && g.Present {
				rate += *o.Price
			}
		}
	}
	return rate
}
