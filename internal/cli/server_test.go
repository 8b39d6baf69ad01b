package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestStripeSetupSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := Run(t.Context(), "test", []string{"server", "stripe-setup"}, nil, strings.NewReader(""), &out,
		&errs); code == 0 ||
		!strings.Contains(errs.String(), "MUSTER_STRIPE_KEY") || !strings.Contains(errs.String(), "MUSTER_PUBLIC_URL") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
}
