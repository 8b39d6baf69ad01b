package sandbox

import (
	"net/http"
	"net/url"
	"strconv"
)

// invoiceItem is a line that was added to an invoice, or that waits for the customer's next one.
type invoiceItem struct {
	ID           string            `json:"id"`
	Object       string            `json:"object"`
	Amount       int64             `json:"amount"`
	Currency     string            `json:"currency"`
	Customer     string            `json:"customer"`
	Date         int64             `json:"date"`
	Description  *string           `json:"description"`
	Discountable bool              `json:"discountable"`
	Discounts    []any             `json:"discounts"`
	Invoice      *string           `json:"invoice"`
	Livemode     bool              `json:"livemode"`
	Metadata     map[string]string `json:"metadata"`
	Period       linePeriod        `json:"period"`
	Proration    bool              `json:"proration"`
	Quantity     int64             `json:"quantity"`
}

// items are the lines that were added to invoices.
type items struct {
	store  *store
	events *events
}

func (its *items) routes(f *front) {
	f.onPost("/v1/invoiceitems", its.create)
	f.onGet("/v1/invoiceitems", func(r *http.Request) answer {
		return pageOf(&its.store.Items, r, func(q url.Values, x *invoiceItem) bool {
			return (q.Get("customer") == "" || x.Customer == q.Get("customer")) && (q.Get("invoice") == "" || x.Invoice != nil &&
				*x.Invoice == q.Get("invoice")) &&
				(q.Get("pending") != "true" || x.Invoice == nil)
		})
	})
}

func (its *items) create(_ *http.Request, form url.Values) answer {
	amount, err := strconv.ParseInt(form.Get("amount"), 10, 64)
	invoiceID, customer := form.Get("invoice"), form.Get("customer")
	switch {
	case err != nil:
		return invalid("amount", "Invalid integer: %s", form.Get("amount"))
	case len(form.Get("currency")) != 3:
		return invalid("currency", "Invalid currency")
	case its.store.Customers.get(customer) == nil:
		return missing("customer", customer)
	}
	if invoiceID != "" {
		switch in := its.store.Invoices.get(invoiceID); {
		case in == nil || in.Customer != customer:
			return missing("invoice", invoiceID)
		case in.Status != "draft":
			return notEditable(in)
		case in.Currency != form.Get("currency"):
			return invalid("currency", "The currency of the invoice is %s.", in.Currency)
		}
	}
	x := &invoiceItem{
		ID:          newID("ii"),
		Object:      "invoiceitem",
		Amount:      amount,
		Currency:    form.Get("currency"),
		Customer:    customer,
		Date:        its.store.now(),
		Description: orNull(form.Get("description")),
		Discounts:   []any{},
		Invoice:     orNull(invoiceID),
		Metadata:    nested(form, "metadata"),
		Period:      linePeriod{its.store.now(), its.store.now()},
		Quantity:    1,
	}
	its.store.Items.put(x.ID, x)
	its.events.emit("invoiceitem.created", x)
	return ok(x)
}

// line is the item as a line of an invoice.
func (x *invoiceItem) line(invoice string) *invoiceLine {
	one := x.Quantity
	return &invoiceLine{
		ID:          "il_" + x.ID,
		Object:      "line_item",
		Amount:      x.Amount,
		Currency:    x.Currency,
		Description: x.Description,
		Discounts:   []any{},
		Invoice:     invoice,
		Item:        x.ID,
		Metadata:    x.Metadata,
		Period:      x.Period,
		Quantity:    &one,
		Type:        "invoiceitem",
	}
}
