package client

import (
	"strings"
	"testing"
	"time"
)

func TestVerifyWebhook(t *testing.T) {
	t.Parallel()
	at, body := time.Unix(1_700_000_000, 0), []byte(`{"id":"ntc_1"}`)
	good := SignWebhook("whsec_a", at, body)
	// The same by another implementation: printf '1700000000.{"id":"ntc_1"}' | openssl dgst -sha256 -hmac whsec_a
	if err := VerifyWebhook("whsec_a", good, body, at.Add(time.Minute)); err != nil {
		t.Errorf("%s: %v", good, err)
	}
	if err := VerifyWebhook("whsec_a", "t=1700000000,v1=00,"+strings.TrimPrefix(good, "t=1700000000,"), body,
		at); err != nil {
		t.Errorf("one of two signatures is right: %v", err)
	}
	for name, err := range map[string]error{
		"another body":   VerifyWebhook("whsec_a", good, []byte("{}"), at),
		"another secret": VerifyWebhook("whsec_b", good, body, at),
		"another time": VerifyWebhook("whsec_a", strings.Replace(good, "t=17", "t=18", 1), body,
			time.Unix(1_800_000_000, 0)),
		"too late":  VerifyWebhook("whsec_a", good, body, at.Add(WebhookTolerance+time.Second)),
		"too early": VerifyWebhook("whsec_a", good, body, at.Add(-WebhookTolerance-time.Second)),
		"no header": VerifyWebhook("whsec_a", "", body, at),
	} {
		if err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}
