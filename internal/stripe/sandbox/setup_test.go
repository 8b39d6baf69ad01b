package sandbox

import (
	"net/http"
	"testing"
)

// Meters, products, prices and webhook endpoints are as Stripe describes them.
func TestConform_SetUp(t *testing.T) {
	t.Parallel()
	k := newTalk(t)
	get, post := http.MethodGet, http.MethodPost
	mtr := k.do(post, "/v1/billing/meters", 200, "event_name", "u", "display_name", "U", "default_aggregation[formula]",
		"sum")
	k.do(post, "/v1/billing/meters", 400, "event_name", "u", "display_name", "U", "default_aggregation[formula]", "sum")
	k.do(post, "/v1/billing/meters", 400, "event_name", "v", "display_name", "U", "default_aggregation[formula]",
		"product")
	k.do(get, "/v1/billing/meters/"+mtr, 200)
	k.do(get, "/v1/billing/meters/mtr_none", 404)
	k.do(get, "/v1/billing/meters", 200, "status", "active")
	k.do(post, "/v1/products", 200, "id", "p", "name", "P")
	k.do(post, "/v1/products", 400, "id", "p", "name", "P")
	k.do(get, "/v1/products/p", 200)
	k.do(get, "/v1/products/none", 404)
	usage := []string{"currency", "eur", "product", "p", "unit_amount_decimal", "0.0001", "lookup_key", "l",
		"recurring[interval]", "month", "recurring[usage_type]", "metered", "recurring[meter]", mtr}
	k.do(post, "/v1/prices", 200, usage...)
	k.do(post, "/v1/prices", 400, usage...) // the lookup key is taken
	k.do(post, "/v1/prices", 404, "currency", "eur", "product", "none", "unit_amount", "1")
	k.do(post, "/v1/prices", 400, "currency", "eur", "product", "p", "unit_amount_decimal", "0.0000000000001")
	k.do(post, "/v1/prices", 200, "currency", "eur", "product", "p", "unit_amount", "100")
	k.do(get, "/v1/prices", 200, "lookup_keys[0]", "l", "active", "true")
	we := k.do(post, "/v1/webhook_endpoints", 200, "url", "https://m.test/hook", "enabled_events[0]", "refund.created",
		"api_version", APIVersion)
	k.do(post, "/v1/webhook_endpoints", 400, "url", "m.test", "enabled_events[0]", "refund.created")
	k.do(post, "/v1/webhook_endpoints", 400, "url", "https://m.test/hook")
	k.do(post, "/v1/webhook_endpoints/"+we, 200, "enabled_events[0]", "refund.updated", "disabled", "true")
	k.do(get, "/v1/webhook_endpoints", 200)
	k.s.Meters.Deactivate(mtr)
	k.do(get, "/v1/billing/meters/"+mtr, 200)
	if got := k.s.Kept(); got != [4]int{1, 1, 2, 1} {
		t.Fatal(got)
	}
}
