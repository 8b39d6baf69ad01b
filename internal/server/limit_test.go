package server

import (
	"strings"
	"testing"

	"github.com/musterhq/muster/internal/fault"
	"github.com/musterhq/muster/internal/money"
)

func TestTheLimitOfTheUnverified(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		limit, key, smtp string
		want             money.Nano
		bad              string
	}{
		{limit: "", want: 0},
		{limit: "", key: "sk_test_1", smtp: "smtp://mail.test", want: 25 * money.Unit},
		{limit: "off", key: "sk_test_1", want: 0},
		{limit: "7.50", want: 7500 * money.Unit / 1000},
		{limit: "", key: "sk_test_1", want: 25 * money.Unit, bad: "needs MUSTER_SMTP_URL"},
		{limit: "0.50", want: money.Unit / 2, bad: "at least 1"},
		{limit: "7.505", want: 7505 * money.Unit / 1000, bad: "whole cents"},
		{limit: "-3", want: -3 * money.Unit, bad: "is off, or an amount"},
		{limit: "some", bad: "is off, or an amount"},
	} {
		c := Config{UnverifiedLimit: x.limit, StripeKey: SecretText(x.key), SMTPURL: SecretText(x.smtp), MailFrom: "a@b.c"}
		if got, _ := c.unverifiedLimit(); got != x.want {
			t.Errorf("%+v: %s", x, got)
		}
		why := ""
		for _, f := range fault.From(c.Validate()).Fields {
			if f.Location == "MUSTER_UNVERIFIED_LIMIT" {
				why = f.Message
			}
		}
		if (why == "") != (x.bad == "") || !strings.Contains(why, x.bad) {
			t.Errorf("%+v: %s", x, why)
		}
	}
}
