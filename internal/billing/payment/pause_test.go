package payment

import (
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/idem"
	"github.com/musterhq/muster/internal/money"
	"github.com/musterhq/muster/internal/stripe/outbox"
)

func (s *shop) setSending(paused bool) outbox.Sending {
	s.T.Helper()
	admin := s.payer
	admin.Admin = true
	x, _, err := s.p.core.out.SetSending(s.T.Context(), admin, paused, "a restore", idem.Request{})
	if err != nil {
		s.T.Fatal(err)
	}
	return x
}

// While sending is paused nothing that moves money reaches Stripe; what waits is sent once when it is resumed.
func TestSending_Pause(t *testing.T) {
	t.Parallel()
	s := newShop(t, "pm_card_visa")
	s.topUp(20 * money.Unit)
	s.square(1)
	s.verifyEmail()
	// A payment and a refund that were decided before the pause and not sent yet.
	s.stripe.Faults.Throttle(0)
	waiting := s.topUp(10 * money.Unit)
	if _, err := s.giveBack(5 * money.Unit); err != nil {
		t.Fatal(err)
	}
	s.stripe.Faults.Heal()
	if x := s.setSending(true); !x.Paused || x.Reason != "a restore" || x.Since == nil {
		t.Fatalf("%+v", x)
	}
	s.SendAll(s.p.core.out)
	if n, _ := s.stripe.Charges.Total(); n != 1 || s.get(waiting).State != Pending {
		t.Fatalf("%d charges while paused, %+v", n, s.get(waiting))
	}
	if n := len(s.stripe.Refunds.IDs()); n != 0 {
		t.Fatalf("%d refunds were made while paused", n)
	}
	_, _, err := s.p.TopUps.Create(t.Context(), s.payer, TopUpRequest{Amount: 10 * money.Unit}, idem.Request{})
	if !fault.Is(err, fault.Unavailable) {
		t.Fatal(err)
	}
	if _, err := s.p.core.out.Sending(t.Context(), s.payer); !fault.Is(err, fault.Forbidden) {
		t.Fatal(err)
	}
	if x := s.setSending(false); x.Paused {
		t.Fatalf("%+v", x)
	}
	s.SendAll(s.p.core.out)
	if n, _ := s.stripe.Charges.Total(); n != 2 || s.get(waiting).State != Succeeded {
		t.Fatalf("%d charges after the pause, %+v", n, s.get(waiting))
	}
	if n := len(s.stripe.Refunds.IDs()); n != 1 {
		t.Fatalf("%d refunds were made after the pause", n)
	}
	var acts int
	if err := s.DB.Pool.QueryRow(t.Context(), "SELECT count(*) FROM audit_event WHERE action IN ('sending.pause', "+
		"'sending.resume')").Scan(&acts); err != nil || acts != 2 {
		t.Fatal(acts, err)
	}
}
