package cli

import (
	"bytes"
	"strings"
	"testing"
)

func TestStripeSetupSaysWhatIsMissing(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := tested.Run(t.Context(), []string{"server", "stripe-setup"}, nil, strings.NewReader(""), &out,
		&errs); code == 0 ||
		!strings.Contains(errs.String(), "MUSTER_STRIPE_KEY") || !strings.Contains(errs.String(), "MUSTER_PUBLIC_URL") {
		t.Errorf("exit %d: %s%s", code, out.String(), errs.String())
	}
}

func TestServerNATSConfig(t *testing.T) {
	t.Parallel()
	secret := strings.Repeat("c2VjcmV0", 8) // base64
	run := func(environ ...string) (int, string) {
		var out, errs bytes.Buffer
		code := tested.Run(t.Context(), []string{"server", "nats-config"}, environ, strings.NewReader(""), &out, &errs)
		return code, out.String() + errs.String()
	}
	code, conf := run("MUSTER_SECRET=" + secret)
	if code != 0 || !strings.Contains(conf, "auth_callout") || strings.Contains(conf, secret) {
		t.Errorf("exit %d: %s", code, conf)
	}
	if _, linked := run("MUSTER_SECRET=x", "MUSTER_LINK_SECRET="+secret); linked != conf {
		t.Errorf("MUSTER_LINK_SECRET does not take precedence: %s", linked)
	}
	if code, text := run("MUSTER_SECRET=x"); code == 0 {
		t.Errorf("a damaged secret: %s", text)
	}
}
