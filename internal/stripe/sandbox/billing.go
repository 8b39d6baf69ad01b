package sandbox

import (
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Times in an invoice's life.
const (
	draftFor = time.Hour // until Stripe finalises it by itself
	retryIn  = 3 * 24 * time.Hour
	retries  = 4 // attempts to charge the card in all
)

// Bill does what the clock has brought: periods that are over get their invoice, drafts of an hour are final, open
// invoices are charged. Any change of the state does it too, and Push.
func (s *Server) Bill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bill()
	s.save()
}

func (s *Server) bill() {
	now := s.now()
	for _, id := range s.s.Subscriptions.Order {
		for x := s.s.Subscriptions.Objects[id]; x.Status != "canceled" && x.End <= now; {
			x = s.s.Subscriptions.get(id)
			s.turnPeriod(x, x.End)
		}
	}
	for _, id := range slices.Clone(s.s.Invoices.Order) {
		in := s.s.Invoices.Objects[id]
		if in.Status == "draft" && in.Advance && in.Created+int64(draftFor/time.Second) <= now {
			s.finalise(s.s.Invoices.get(id))
		}
		if in.Status == "open" && in.NextAttempt != nil && *in.NextAttempt <= now {
			s.attemptInvoice(s.s.Invoices.get(id), "")
		}
	}
}

// turnPeriod ends a subscription's period: its invoice is made, and the next period begins, unless that was the last.
func (s *Server) turnPeriod(x *subscription, end int64) {
	s.newInvoice(x, "subscription_cycle", x.Start, end, end)
	if x.Ending {
		s.end(x)
		return
	}
	x.Start = end
	if end == x.End {
		x.Periods++
	} else { // ended early: the next is a whole one
		x.Anchor, x.Periods = end, 1
	}
	x.End = monthsAfter(x.Anchor, x.Periods)
	s.emit("customer.subscription.updated", x)
}

// EndPeriod ends the running period of a customer's subscriptions now, as if the month were over; it returns the ids of
// the drafts.
func (s *Server) EndPeriod(customer string) (drafts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bill()
	now := s.now()
	for _, id := range s.s.Subscriptions.Order {
		if x := s.s.Subscriptions.Objects[id]; x.Customer == customer && x.Status != "canceled" {
			s.turnPeriod(s.s.Subscriptions.get(id), now)
			drafts = append(drafts, *x.Latest)
		}
	}
	s.save()
	return drafts
}

// HourOver finalises a draft now, as Stripe does when its hour is over.
func (s *Server) HourOver(invoiceID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if in := s.s.Invoices.get(invoiceID); in != nil && in.Status == "draft" {
		s.finalise(in)
		s.bill()
		s.save()
	}
}

// PayHere is the payer paying an invoice on its page with a test card; done reports whether the card was good.
func (s *Server) PayHere(invoiceID, method string) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.s.Invoices.get(invoiceID)
	if in == nil || in.Status != "open" && in.Status != "uncollectible" {
		return false
	}
	p := s.s.Payments.get(*in.Payment)
	s.charge(p, method, *in.URL, nil)
	if p.Status == "requires_action" { // who pays there answers their bank
		s.collect(p)
	}
	s.save()
	return in.Status == "paid"
}

// PaidByHand marks an invoice as paid, as a person can in Stripe's dashboard: the money came another way.
func (s *Server) PaidByHand(invoiceID string) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.s.Invoices.get(invoiceID)
	if in == nil || in.Status != "open" && in.Status != "uncollectible" {
		return false
	}
	s.payInvoice(in, url.Values{"paid_out_of_band": {"true"}})
	s.save()
	return true
}

// InvoiceByHand sends a customer an invoice, as a person can in Stripe's dashboard; the default card is charged for it.
func (s *Server) InvoiceByHand(customer, currency string, cents int64) (id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	in := s.draft(customer, currency, "manual")
	x := &invoiceItem{
		ID:        newID("ii"),
		Object:    "invoiceitem",
		Amount:    cents,
		Currency:  currency,
		Customer:  customer,
		Date:      s.now(),
		Discounts: []any{},
		Invoice:   &in.ID,
		Metadata:  map[string]string{},
		Period:    linePeriod{s.now(), s.now()},
		Quantity:  1,
	}
	s.s.Items.put(x.ID, x)
	s.emit("invoice.created", s.shownInvoice(in))
	s.finalise(in)
	s.bill()
	s.save()
	return in.ID
}

// InvoicesOf are the ids of a customer's invoices, oldest first.
func (s *Server) InvoicesOf(customer string) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range s.s.Invoices.Order {
		if s.s.Invoices.Objects[id].Customer == customer {
			ids = append(ids, id)
		}
	}
	return ids
}

// meteredCents is what so many units at a decimal number of cents come to: exact, and rounded half up to whole cents.
func meteredCents(units int64, decimal string) int64 {
	const places = 12 // of the decimals that Stripe takes
	whole, frac, _ := strings.Cut(decimal, ".")
	price, good := new(big.Int).SetString(whole+frac+strings.Repeat("0", places-len(frac)), 10)
	if !good {
		panic("sandbox: a price that was not checked: " + decimal)
	}
	one := new(big.Int).Exp(big.NewInt(10), big.NewInt(places), nil)
	x := price.Mul(price, big.NewInt(units))
	x.Add(x, new(big.Int).Rsh(one, 1))
	return x.Div(x, one).Int64()
}

// attemptInvoice charges an open invoice's card: the one named, or the customer's default.
func (s *Server) attemptInvoice(in *invoice, method string) answer {
	if c := s.s.Customers.get(in.Customer); method == "" && c.Settings.Method != nil {
		method = *c.Settings.Method
	}
	p := s.s.Payments.get(*in.Payment)
	if m := s.s.Methods.get(method); m == nil || m.Customer == nil {
		none := apiError{Status: 400, Type: "invalid_request_error", Code: "resource_missing",
			Message: "This customer has no attached payment source or default payment method."}
		s.invoiceRefused(p, none)
		return none.answer()
	}
	in.NextAttempt = nil // until the card has answered
	return s.charge(p, method, "", nil)
}

// invoiceRefused books that a card did not pay an invoice, which is tried again some days later.
func (s *Server) invoiceRefused(p *payment, why apiError) {
	if p.Invoice == nil {
		return
	}
	in := s.s.Invoices.get(*p.Invoice)
	in.Attempts, in.Attempted, in.NextAttempt = in.Attempts+1, true, nil
	if next := s.now() + int64(retryIn/time.Second); in.Advance && in.Attempts < retries && in.Status == "open" {
		in.NextAttempt = &next
	}
	if why.Code == wantsPayer.Code {
		s.emit("invoice.payment_action_required", s.shownInvoice(in))
	}
	s.emit("invoice.payment_failed", s.shownInvoice(in))
	if x := s.subscriptionOf(in); x != nil && x.Status == "active" {
		x.Status = "past_due"
		s.emit("customer.subscription.updated", x)
	}
}

// invoiceCollected books that a payment of an invoice has succeeded.
func (s *Server) invoiceCollected(p *payment) {
	if p.Invoice == nil {
		return
	}
	in := s.s.Invoices.get(*p.Invoice)
	if id, is := p.LatestCharge.(string); is {
		in.Charge = &id
	}
	in.Attempts++
	s.invoiceIsPaid(in, p.AmountReceived)
}

func (s *Server) invoiceIsPaid(in *invoice, cents int64) {
	now := s.now()
	in.Status, in.Paid, in.AmountPaid, in.Attempted, in.NextAttempt, in.Transitions.Paid = "paid", true, cents, true, nil,
		&now
	if in.OutOfBand {
		s.givenUp(in, "automatic")
	}
	s.emit("invoice.paid", s.shownInvoice(in))
	s.emit("invoice.payment_succeeded", s.shownInvoice(in))
	if x := s.subscriptionOf(in); x != nil && x.Status == "past_due" && !s.owes(x) {
		x.Status = "active"
		s.emit("customer.subscription.updated", x)
	}
}

// owes reports whether a subscription has an invoice whose card was refused.
func (s *Server) owes(x *subscription) bool {
	for _, in := range s.s.Invoices.Objects {
		if in.Subscription != nil && *in.Subscription == x.ID && in.Status == "open" && in.Attempts > 0 {
			return true
		}
	}
	return false
}

func (s *Server) subscriptionOf(in *invoice) *subscription {
	if in.Subscription == nil {
		return nil
	}
	return s.s.Subscriptions.get(*in.Subscription)
}

// givenUp cancels the payment of an invoice that is not to be paid any more.
func (s *Server) givenUp(in *invoice, why string) {
	if in.Payment == nil {
		return
	}
	p := s.s.Payments.get(*in.Payment)
	p.Status, p.CancelReason = "canceled", &why
	s.emit("payment_intent.canceled", p)
}

// invoicePage is where a payer sees an invoice, and pays it.
func (s *Server) invoicePage(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	in := s.s.Invoices.get(r.PathValue("id"))
	d := pageData{Title: "Sandbox invoice", Failed: r.URL.Query().Has("failed")}
	name := "receipt"
	if in != nil && in.Number != nil {
		d.What = "Invoice " + *in.Number + " of " + cents(in.Total, in.Currency) + " is " + in.Status + "."
		if in.Status == "open" || in.Status == "uncollectible" {
			name, d.What = "pay", "Pay "+cents(in.AmountDue, in.Currency)+" of invoice "+*in.Number
		}
	}
	s.mu.Unlock()
	if d.What == "" {
		http.NotFound(w, r)
		return
	}
	show(w, name, d)
}

func (s *Server) invoiceClicked(w http.ResponseWriter, r *http.Request) {
	to := s.cfg.PublicURL + "/pay/invoices/" + r.PathValue("id")
	if !s.PayHere(r.PathValue("id"), r.FormValue("method")) {
		to += "?failed=1"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
