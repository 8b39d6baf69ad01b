package sandbox

import (
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
)

type product struct {
	ID       string            `json:"id"`
	Object   string            `json:"object"`
	Active   bool              `json:"active"`
	Created  int64             `json:"created"`
	Features []any             `json:"features"`
	Images   []any             `json:"images"`
	Livemode bool              `json:"livemode"`
	Metadata map[string]string `json:"metadata"`
	Name     string            `json:"name"`
	Unit     *string           `json:"unit_label"`
	Updated  int64             `json:"updated"`
}

type price struct {
	ID          string            `json:"id"`
	Object      string            `json:"object"`
	Active      bool              `json:"active"`
	Scheme      string            `json:"billing_scheme"`
	Created     int64             `json:"created"`
	Currency    string            `json:"currency"`
	Livemode    bool              `json:"livemode"`
	Lookup      *string           `json:"lookup_key"`
	Metadata    map[string]string `json:"metadata"`
	Product     string            `json:"product"`
	Recurring   *recurring        `json:"recurring"`
	Type        string            `json:"type"`
	UnitAmount  *int64            `json:"unit_amount"`         // cents; null where they are not whole
	UnitDecimal *string           `json:"unit_amount_decimal"` // cents
}

type recurring struct {
	Aggregate *string `json:"aggregate_usage"`
	Interval  string  `json:"interval"`
	Count     int     `json:"interval_count"`
	Meter     *string `json:"meter"`
	Usage     string  `json:"usage_type"`
}

var decimalCents = regexp.MustCompile(`^[0-9]{1,12}(\.[0-9]{1,12})?$`)

// prices are the products and what they cost.
type prices struct{ store *store }

func (ps *prices) routes(f *front) {
	f.onPost("/v1/products", ps.createProduct)
	f.onGet("/v1/products/{id}", func(r *http.Request) answer {
		if p := ps.store.Products.get(r.PathValue("id")); p != nil {
			return ok(p)
		}
		return missing("product", r.PathValue("id"))
	})
	f.onPost("/v1/prices", ps.createPrice)
	f.onGet("/v1/prices", func(r *http.Request) answer {
		var keys []string
		for k, v := range r.URL.Query() {
			if len(k) > 12 && k[:12] == "lookup_keys[" {
				keys = append(keys, v...)
			}
		}
		return pageOf(&ps.store.Prices, r, func(q url.Values, p *price) bool {
			return (keys == nil || p.Lookup != nil && slices.Contains(keys, *p.Lookup)) &&
				(q.Get("active") == "" || strconv.FormatBool(p.Active) == q.Get("active"))
		})
	})
}

func (ps *prices) createProduct(_ *http.Request, form url.Values) answer {
	id := or(form.Get("id"), newID("prod"))
	switch {
	case form.Get("name") == "":
		return invalid("name", "Missing required param: name.")
	case ps.store.Products.get(id) != nil:
		return apiError{
			Status:  400,
			Type:    "invalid_request_error",
			Code:    "resource_already_exists",
			Message: "Product already exists.",
		}.answer()
	}
	return ok(ps.store.Products.put(id, &product{
		ID:       id,
		Object:   "product",
		Active:   true,
		Created:  ps.store.now(),
		Updated:  ps.store.now(),
		Features: []any{},
		Images:   []any{},
		Metadata: nested(form, "metadata"),
		Name:     form.Get("name"),
		Unit:     orNull(form.Get("unit_label")),
	}))
}

func (ps *prices) createPrice(_ *http.Request, form url.Values) answer {
	p := &price{
		ID:       newID("price"),
		Object:   "price",
		Active:   true,
		Scheme:   "per_unit",
		Created:  ps.store.now(),
		Currency: form.Get("currency"),
		Lookup:   orNull(form.Get("lookup_key")),
		Metadata: nested(form, "metadata"),
		Product:  form.Get("product"),
		Type:     "one_time",
	}
	meter := form.Get("recurring[meter]")
	switch {
	case len(p.Currency) != 3:
		return invalid("currency", "Invalid currency")
	case ps.store.Products.get(p.Product) == nil:
		return missing("product", p.Product)
	case meter != "" && ps.store.Meters.get(meter) == nil:
		return missing("billing meter", meter)
	case meter != "" && form.Get("recurring[usage_type]") != "metered":
		return invalid("recurring[usage_type]", "A price with a meter is metered.")
	}
	for _, x := range ps.store.Prices.Objects {
		if p.Lookup != nil && x.Lookup != nil && x.Active && *x.Lookup == *p.Lookup {
			return invalid("lookup_key", "A price (`%s`) already uses that lookup key.", x.ID)
		}
	}
	amount := or(form.Get("unit_amount_decimal"), form.Get("unit_amount"))
	if !decimalCents.MatchString(amount) {
		return invalid("unit_amount_decimal", "Invalid decimal: must be a number of cents with at most 12 decimal places")
	}
	p.UnitDecimal = &amount
	if n, err := strconv.ParseInt(amount, 10, 64); err == nil {
		p.UnitAmount = &n
	}
	if every := form.Get("recurring[interval]"); every != "" {
		p.Type = "recurring"
		p.Recurring = &recurring{
			Interval: every,
			Count:    1,
			Meter:    orNull(meter),
			Usage:    or(form.Get("recurring[usage_type]"), "licensed"),
		}
	}
	return ok(ps.store.Prices.put(p.ID, p))
}
