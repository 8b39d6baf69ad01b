package payment

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/stripe"
	"github.com/musterhq/muster/internal/stripe/sandbox"
)

const hook = "https://muster.test/stripe/webhook"

func (s *shop) setUp() StripeSetup {
	s.T.Helper()
	x, err := SetUpStripe(s.T.Context(), s.p.core.stripe, "EUR", hook)
	if err != nil {
		s.T.Fatal(err)
	}
	return x
}

func TestSetUp_CreatesOnce(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	first := s.setUp()
	if !slices.Equal(first.Made, []string{"meter", "product", "price", "endpoint", "connect"}) ||
		len(first.Secrets) != 2 || !strings.HasPrefix(first.Secrets[0], "whsec_") || first.Endpoint == first.Connect ||
		first.Warnings != nil || first.Changed != nil {
		t.Fatalf("%+v", first)
	}
	again := s.setUp()
	first.Made, first.Secrets = nil, nil
	if d := cmp.Diff(first, again); d != "" {
		t.Fatal(d)
	}
	// Another currency has a price of its own on the same meter.
	other, err := SetUpStripe(t.Context(), s.p.core.stripe, "USD", hook)
	if err != nil || !slices.Equal(other.Made, []string{"price"}) || other.Meter != first.Meter ||
		other.Price == first.Price {
		t.Fatalf("%+v %v", other, err)
	}
}

// Whatever is lost on the way, running it again ends with one of each.
func TestSetUp_AfterLostAnswers(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	failed := 0
	for i := range 40 {
		s.stripe.Faults.Fail([]sandbox.Fault{sandbox.None, sandbox.Error500, sandbox.RateLimited, sandbox.Truncated}[i%4],
			sandbox.Error500)
		if _, err := SetUpStripe(t.Context(), s.p.core.stripe, "EUR", hook); err != nil {
			failed++
		}
		s.stripe.Faults.Heal()
	}
	if failed == 0 {
		t.Fatal("nothing was lost")
	}
	if again := s.setUp(); again.Made != nil || again.Secrets != nil {
		t.Fatalf("%+v", again)
	}
	if n := s.stripe.Kept(); n != [4]int{1, 1, 1, 2} {
		t.Fatalf("%v meters, products, prices, endpoints", n)
	}
}

func TestSetUp_RepairsEndpoint(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	we := s.setUp().Endpoint
	s.stripe.Endpoints.Edit(we, "2019-01-01", "refund.created", "customer.created")
	mended := s.setUp()
	if !slices.Equal(mended.Changed, []string{"endpoint"}) || mended.Made != nil || len(mended.Warnings) != 1 ||
		!strings.Contains(mended.Warnings[0], "2019-01-01") {
		t.Fatalf("%+v", mended)
	}
	e, err := s.p.core.stripe.FindEndpoint(t.Context(), hook, false)
	if err != nil || !e.Enabled || !slices.Contains(e.Events, "customer.created") {
		t.Fatalf("%+v %v", e, err)
	}
	for _, want := range WebhookEvents {
		if !slices.Contains(e.Events, want) {
			t.Errorf("%s is not sent", want)
		}
	}
	if again := s.setUp(); again.Changed != nil {
		t.Fatal("changed again")
	}
	s.stripe.Endpoints.Edit(we, stripe.APIVersion, "*")
	if all := s.setUp(); all.Changed == nil || all.Warnings != nil { // it was switched off
		t.Fatalf("%+v", all)
	}
	e, err = s.p.core.stripe.FindEndpoint(t.Context(), hook, false)
	if err != nil || !slices.Equal(e.Events, []string{"*"}) {
		t.Fatalf("%+v %v", e, err)
	}
}

// A meter that was switched off is replaced, and then the price, which belongs to the old one, is not taken for ours.
func TestSetUp_RefusesOtherPrice(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	s.stripe.Meters.Deactivate(s.setUp().Meter)
	x, err := SetUpStripe(t.Context(), s.p.core.stripe, "EUR", hook)
	if !fault.Is(err, fault.Conflict) || !strings.Contains(err.Error(), "lookup key muster_usage_eur") {
		t.Fatalf("%+v %v", x, err)
	}
}

func TestSetUp_DocsListEvents(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/stripe.md")
	if err != nil {
		t.Fatal(err)
	}
	if !slices.IsSorted(WebhookEvents) {
		t.Error("not sorted")
	}
	for _, e := range append(slices.Clone(WebhookEvents), ConnectEvents...) {
		if !strings.Contains(string(b), "`"+e+"`") {
			t.Errorf("docs/stripe.md does not name %s", e)
		}
	}
}
