package sandbox

import (
	"fmt"
	"math/big"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

type invoice struct {
	ID           string             `json:"id"`
	Object       string             `json:"object"`
	AmountDue    int64              `json:"amount_due"`
	AmountPaid   int64              `json:"amount_paid"`
	Remaining    int64              `json:"amount_remaining"`
	Shipping     int64              `json:"amount_shipping"`
	Attempts     int64              `json:"attempt_count"`
	Attempted    bool               `json:"attempted"`
	Advance      bool               `json:"auto_advance"`
	AutomaticTax automaticTax       `json:"automatic_tax"`
	Reason       string             `json:"billing_reason"`
	Charge       *string            `json:"charge"`
	Collection   string             `json:"collection_method"`
	Created      int64              `json:"created"`
	Currency     string             `json:"currency"`
	Customer     string             `json:"customer"`
	TaxRates     []any              `json:"default_tax_rates"`
	Due          *int64             `json:"due_date"`
	Ending       *int64             `json:"ending_balance"`
	URL          *string            `json:"hosted_invoice_url"`
	Issuer       issuer             `json:"issuer"`
	Lines        list               `json:"lines"`
	Livemode     bool               `json:"livemode"`
	Metadata     map[string]string  `json:"metadata"`
	NextAttempt  *int64             `json:"next_payment_attempt"`
	Number       *string            `json:"number"`
	Paid         bool               `json:"paid"`
	OutOfBand    bool               `json:"paid_out_of_band"`
	Payment      *string            `json:"payment_intent"`
	Settings     paymentSettings    `json:"payment_settings"`
	End          int64              `json:"period_end"`
	Start        int64              `json:"period_start"`
	PostCredits  int64              `json:"post_payment_credit_notes_amount"`
	PreCredits   int64              `json:"pre_payment_credit_notes_amount"`
	Starting     int64              `json:"starting_balance"`
	Status       string             `json:"status"` // draft, open, paid, void, uncollectible
	Transitions  invoiceTransitions `json:"status_transitions"`
	Subscription *string            `json:"subscription"`
	SubDetails   *metadataOf        `json:"subscription_details"`
	Subtotal     int64              `json:"subtotal"`
	Total        int64              `json:"total"`
	Discounts    []any              `json:"total_discount_amounts"`
	Taxes        []any              `json:"total_tax_amounts"`
	// Metered is the line of what the meter counted, fixed once the invoice is final; nil: there is none.
	Metered *invoiceLine `json:"x_metered,omitempty"`
}

type issuer struct {
	Type string `json:"type"`
}

type metadataOf struct {
	Metadata map[string]string `json:"metadata"`
}

type paymentSettings struct {
	Types []string `json:"payment_method_types"`
}

type invoiceTransitions struct {
	Finalized     *int64 `json:"finalized_at"`
	Uncollectible *int64 `json:"marked_uncollectible_at"`
	Paid          *int64 `json:"paid_at"`
	Voided        *int64 `json:"voided_at"`
}

type invoiceLine struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Amount       int64             `json:"amount"`
	Currency     string            `json:"currency"`
	Description  *string           `json:"description"`
	Discountable bool              `json:"discountable"`
	Discounts    []any             `json:"discounts"`
	Invoice      string            `json:"invoice"`
	Item         string            `json:"invoice_item,omitempty"`
	Livemode     bool              `json:"livemode"`
	Metadata     map[string]string `json:"metadata"`
	Period       linePeriod        `json:"period"`
	Price        *price            `json:"price"`
	Proration    bool              `json:"proration"`
	Quantity     *int64            `json:"quantity"`
	Subscription *string           `json:"subscription"`
	SubItem      string            `json:"subscription_item,omitempty"`
	Type         string            `json:"type"` // invoiceitem, subscription
}

type linePeriod struct {
	End   int64 `json:"end"`
	Start int64 `json:"start"`
}

// Invoices are what customers owe, from the draft until they are paid: see also collection.go.
type Invoices struct {
	store    *store
	events   *events
	meters   *Meters
	payments *Payments
	url      string // where browsers reach the pages
}

func (ins *Invoices) routes(f *front) {
	f.onGet("/v1/invoices", ins.list)
	f.onGet("/v1/invoices/{id}", func(r *http.Request) answer {
		if in := ins.store.Invoices.get(r.PathValue("id")); in != nil {
			return ok(ins.shown(in))
		}
		return missing("invoice", r.PathValue("id"))
	})
	f.onGet("/v1/invoices/{id}/lines", func(r *http.Request) answer {
		in := ins.store.Invoices.get(r.PathValue("id"))
		if in == nil {
			return missing("invoice", r.PathValue("id"))
		}
		all := shelf[invoiceLine]{}
		for _, l := range slices.Backward(ins.lines(in)) { // a page is newest first
			all.put(l.ID, l)
		}
		return pageOf(&all, r, func(url.Values, *invoiceLine) bool { return true })
	})
	ins.changes(f, "finalize", ins.finaliseInvoice)
	ins.changes(f, "pay", ins.payInvoice)
	ins.changes(f, "void", ins.voidInvoice)
	ins.changes(f, "mark_uncollectible", ins.giveUpInvoice)
	f.pages.HandleFunc("GET /pay/invoices/{id}", ins.page)
	f.pages.HandleFunc("POST /pay/invoices/{id}", ins.clicked)
}

func (ins *Invoices) changes(f *front, how string, do func(in *invoice, form url.Values) answer) {
	f.onPost("/v1/invoices/{id}/"+how, func(r *http.Request, form url.Values) answer {
		in := ins.store.Invoices.get(r.PathValue("id"))
		if in == nil {
			return missing("invoice", r.PathValue("id"))
		}
		return do(in, form)
	})
}

func (ins *Invoices) list(r *http.Request) answer {
	whole := shelf[invoice]{Objects: map[string]*invoice{}, Order: ins.store.Invoices.Order}
	for id, in := range ins.store.Invoices.Objects {
		whole.Objects[id] = ins.shown(in)
	}
	return pageOf(&whole, r, func(q url.Values, in *invoice) bool {
		since, err := strconv.ParseInt(q.Get("created[gte]"), 10, 64)
		return (err != nil || in.Created >= since) && (q.Get("customer") == "" || in.Customer == q.Get("customer")) &&
			(q.Get("status") == "" || in.Status == q.Get("status")) &&
			(q.Get("subscription") == "" || in.Subscription != nil && *in.Subscription == q.Get("subscription"))
	})
}

// ofPeriod makes the draft of what a subscription used between two moments, with the lines that wait for the
// customer's next invoice.
func (ins *Invoices) ofPeriod(x *subscription, reason string, start, end, at int64) *invoice {
	in := ins.draft(x.Customer, x.Currency, reason)
	in.Created, in.Start, in.End, in.Subscription, in.SubDetails = at, start, end, &x.ID, &metadataOf{x.Metadata}
	in.Metered = &invoiceLine{
		ID:           newID("il"),
		Object:       "line_item",
		Currency:     x.Currency,
		Description:  orNull("GPU cluster usage"),
		Discountable: true,
		Discounts:    []any{},
		Invoice:      in.ID,
		Metadata:     x.Metadata,
		Period:       linePeriod{end, start},
		Price:        ins.store.Prices.Objects[x.Price],
		Subscription: &x.ID,
		SubItem:      x.Item,
		Type:         "subscription",
	}
	x.Latest = &in.ID
	for _, id := range ins.store.Items.Order {
		if w := ins.store.Items.Objects[id]; w.Invoice == nil && w.Customer == in.Customer && w.Currency == in.Currency {
			ins.store.Items.get(id).Invoice = &in.ID
		}
	}
	ins.events.emit("invoice.created", ins.shown(in))
	return in
}

// draft makes an invoice without lines.
func (ins *Invoices) draft(customer, currency, reason string) *invoice {
	in := &invoice{
		ID:         newID("in"),
		Object:     "invoice",
		Advance:    true,
		Reason:     reason,
		Collection: "charge_automatically",
		Created:    ins.store.now(),
		Currency:   currency,
		Customer:   customer,
		TaxRates:   []any{},
		Issuer:     issuer{"self"},
		Metadata:   map[string]string{},
		Settings:   paymentSettings{[]string{"card"}},
		Start:      ins.store.now(),
		End:        ins.store.now(),
		Status:     "draft",
		Discounts:  []any{},
		Taxes:      []any{},
	}
	return ins.store.Invoices.put(in.ID, in)
}

// lines are an invoice's, the metered one first: while it is a draft, as much as is counted by now.
func (ins *Invoices) lines(in *invoice) (out []*invoiceLine) {
	if in.Metered != nil {
		l := *in.Metered
		if in.Status == "draft" {
			n := ins.meters.used(ins.store.Meters.Objects[*l.Price.Recurring.Meter], in.Customer, in.Start, in.End)
			l.Quantity, l.Amount = &n, meteredCents(n, *l.Price.UnitDecimal)
		}
		out = append(out, &l)
	}
	for _, id := range ins.store.Items.Order {
		if x := ins.store.Items.Objects[id]; x.Invoice != nil && *x.Invoice == in.ID {
			out = append(out, x.line(in.ID))
		}
	}
	return out
}

// shown is an invoice with its first lines, and what they come to.
func (ins *Invoices) shown(in *invoice) *invoice {
	out := *in
	lines := ins.lines(in)
	out.Lines = listOf("/v1/invoices/" + in.ID + "/lines")
	for i, l := range lines {
		if out.Lines.HasMore = i == 10; out.Lines.HasMore {
			break
		}
		out.Lines.Data = append(out.Lines.Data, l)
	}
	if in.Status == "draft" {
		out.Total = 0
		for _, l := range lines {
			out.Total += l.Amount
		}
		out.Subtotal, out.Starting = out.Total, ins.store.Customers.Objects[in.Customer].Balance
		out.AmountDue = max(0, out.Total+out.Starting)
	}
	out.Remaining = max(0, out.AmountDue-out.AmountPaid)
	return &out
}

// leastCharge is the least that Stripe charges a card, in cents.
const leastCharge = 50

// finalise ends a draft. What is too little to charge, or negative, goes to the customer's balance.
func (ins *Invoices) finalise(in *invoice) {
	final, now := ins.shown(in), ins.store.now()
	if in.Metered != nil {
		in.Metered = ins.lines(in)[0]
	}
	c := ins.store.Customers.get(in.Customer)
	in.Subtotal, in.Total, in.Starting, in.AmountDue = final.Subtotal, final.Total, final.Starting, final.AmountDue
	in.Status, in.Transitions.Finalized = "open", &now
	in.Number = orNull(fmt.Sprintf("%s-%04d", strings.ToUpper(c.ID[4:12]), ins.finalised(c.ID)))
	in.URL = orNull(ins.url + "/pay/invoices/" + in.ID)
	left := in.Total + in.Starting
	if left >= leastCharge {
		left = 0
	}
	if in.AmountDue < leastCharge {
		in.AmountDue = 0
	}
	in.Ending, c.Balance = &left, left
	if in.AmountDue > 0 {
		p := ins.payments.add(in.AmountDue, in.Currency, in.Customer, map[string]string{})
		p.Description, p.Invoice = orNull("Subscription update"), &in.ID
		in.Payment = &p.ID
		if in.Advance {
			in.NextAttempt = &now
		}
	}
	ins.events.emit("invoice.finalized", ins.shown(in))
	if in.AmountDue == 0 {
		ins.isPaid(in, 0)
	}
}

// finalised is how many invoices of a customer are or were final.
func (ins *Invoices) finalised(customer string) (n int) {
	for _, in := range ins.store.Invoices.Objects {
		if in.Customer == customer && in.Status != "draft" {
			n++
		}
	}
	return n
}

func notEditable(in *invoice) answer {
	return apiError{
		Status:  400,
		Type:    "invalid_request_error",
		Code:    "invoice_not_editable",
		Message: "This invoice is no longer editable: it is " + in.Status + ".",
	}.answer()
}

func (ins *Invoices) finaliseInvoice(in *invoice, form url.Values) answer {
	if in.Status != "draft" {
		return refused("This invoice is already finalized, you can't re-finalize a non-draft invoice.")
	}
	switch form.Get("auto_advance") {
	case "true":
		in.Advance = true
	case "false":
		in.Advance = false
	}
	ins.finalise(in)
	return ok(ins.shown(in))
}

func (ins *Invoices) payInvoice(in *invoice, form url.Values) answer {
	switch {
	case in.Status == "paid":
		return apiError{
			Status:  400,
			Type:    "invalid_request_error",
			Code:    "invoice_already_paid",
			Message: "Invoice is already paid",
		}.answer()
	case in.Status != "open" && in.Status != "uncollectible":
		return notEditable(in)
	case form.Get("paid_out_of_band") == "true":
		in.OutOfBand = true
		ins.isPaid(in, in.AmountDue)
		return ok(ins.shown(in))
	}
	if a := ins.attempt(in, form.Get("payment_method")); a.Status != http.StatusOK {
		return a
	}
	return ok(ins.shown(in))
}

func (ins *Invoices) voidInvoice(in *invoice, _ url.Values) answer {
	if in.Status != "open" && in.Status != "uncollectible" {
		return notEditable(in)
	}
	now := ins.store.now()
	in.Status, in.Transitions.Voided, in.NextAttempt = "void", &now, nil
	ins.store.Customers.get(in.Customer).Balance += in.Starting - *in.Ending
	ins.givenUp(in, "void_invoice")
	ins.events.emit("invoice.voided", ins.shown(in))
	return ok(ins.shown(in))
}

func (ins *Invoices) giveUpInvoice(in *invoice, _ url.Values) answer {
	if in.Status != "open" {
		return notEditable(in)
	}
	now := ins.store.now()
	in.Status, in.Transitions.Uncollectible, in.NextAttempt = "uncollectible", &now, nil
	ins.events.emit("invoice.marked_uncollectible", ins.shown(in))
	return ok(ins.shown(in))
}

// Of are the ids of a customer's invoices, oldest first.
func (ins *Invoices) Of(customer string) (ids []string) {
	ins.store.mu.Lock()
	defer ins.store.mu.Unlock()
	for _, id := range ins.store.Invoices.Order {
		if ins.store.Invoices.Objects[id].Customer == customer {
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
