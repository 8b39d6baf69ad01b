package server

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/musterhq/muster/internal/billing/tax"
	"github.com/musterhq/muster/internal/fault"
)

func TestTrustedProxiesAreRead(t *testing.T) {
	t.Parallel()
	c, err := LoadConfig(map[string]string{"MUSTER_TRUSTED_PROXIES": "10.0.0.0/8,::1/128"})
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	if err != nil || !slices.Equal(c.TrustedProxies, want) {
		t.Errorf("%v %v", c.TrustedProxies, err)
	}
	if _, err := LoadConfig(map[string]string{"MUSTER_TRUSTED_PROXIES": "everybody"}); err == nil {
		t.Error("took nonsense")
	}
}

// A relay that listens everywhere does not contain the address of the relay, which has to be set.
func TestRelaysAreNamed(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env  map[string]string
		good bool
	}{
		{map[string]string{"MUSTER_RELAY_LISTEN": ":3478"}, false},
		{map[string]string{"MUSTER_RELAY_LISTEN": "0.0.0.0:3478"}, false},
		{map[string]string{"MUSTER_RELAY_LISTEN": "127.0.0.1:0"}, true},
		{map[string]string{"MUSTER_RELAY_LISTEN": "0.0.0.0:3478", "MUSTER_RELAYS": "relay.example:3478"}, true},
		{map[string]string{"MUSTER_RELAYS": "relay.example"}, false},
		{map[string]string{"MUSTER_RELAYS": "relay.example:3478", "MUSTER_RELAY_SECRET": "short"}, false},
	} {
		c, err := LoadConfig(tc.env)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Validate() // other settings are missing here: only what is said of relays counts
		refused := slices.ContainsFunc(fault.From(err).Fields,
			func(f fault.Field) bool { return strings.HasPrefix(f.Location, "MUSTER_RELAY") })
		if refused == tc.good {
			t.Errorf("%v: %+v", tc.env, fault.From(err).Fields)
		}
	}
}

// Hosts may connect to several NATS servers, over TLS only.
func TestConfig_AddressesOfNATS(t *testing.T) {
	t.Parallel()
	for value, good := range map[string]bool{
		"": true, "tls://a:4222": true, "tls://a:4222,tls://b:4222,wss://c": true,
		"nats://a:4222": false, "a:4222": false, "tls://a:4222,b": false,
	} {
		c, err := LoadConfig(map[string]string{"MUSTER_NATS_PUBLIC_URL": value})
		if err != nil {
			t.Fatal(err)
		}
		refused := slices.ContainsFunc(fault.From(c.Validate()).Fields,
			func(f fault.Field) bool { return f.Location == "MUSTER_NATS_PUBLIC_URL" })
		if refused == good {
			t.Errorf("%q: refused is %t", value, refused)
		}
	}
}

func TestTheMerchantHasNameAndAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		env  map[string]string
		good bool
	}{
		{map[string]string{}, true},
		{map[string]string{
			"MUSTER_MERCHANT_NAME":    "M Ltd",
			"MUSTER_MERCHANT_ADDRESS": "1 Street | 12345 Town|Country",
		}, true},
		{map[string]string{"MUSTER_MERCHANT_NAME": "M Ltd"}, false},
		{map[string]string{"MUSTER_MERCHANT_ADDRESS": "1 Street"}, false},
		{map[string]string{"MUSTER_MERCHANT_VAT_ID": "DE123456788"}, false},
		{map[string]string{
			"MUSTER_MERCHANT_NAME":    "M Ltd",
			"MUSTER_MERCHANT_ADDRESS": "1 Street | 12345 Town|Country",
			"MUSTER_MERCHANT_COUNTRY": "de",
			"MUSTER_MERCHANT_VAT_ID":  "DE 123 456 788",
		}, true},
		{map[string]string{
			"MUSTER_MERCHANT_NAME":    "M Ltd",
			"MUSTER_MERCHANT_ADDRESS": "1 Street | 12345 Town|Country",
			"MUSTER_MERCHANT_COUNTRY": "DE",
			"MUSTER_MERCHANT_VAT_ID":  "FR12345678901",
		}, false},
		{map[string]string{"MUSTER_MERCHANT_COUNTRY": "Germany"}, false},
	} {
		c, err := LoadConfig(tc.env)
		if err != nil {
			t.Fatal(err)
		}
		if tc.good && tc.env["MUSTER_MERCHANT_NAME"] != "" &&
			!slices.Equal(c.merchant().Address, []string{"1 Street", "12345 Town", "Country"}) {
			t.Errorf("%q", c.merchant().Address)
		}
		err = c.Validate() // other settings are missing here: only what is said of the merchant counts
		refused := slices.ContainsFunc(fault.From(err).Fields,
			func(f fault.Field) bool { return strings.HasPrefix(f.Location, "MUSTER_MERCHANT") })
		if refused == tc.good {
			t.Errorf("%v: %+v", tc.env, fault.From(err).Fields)
		}
	}
}

// Tax is charged in the sandbox, and with a key only when its rates and who owes it are configured.
func TestTaxRatesAreConfigured(t *testing.T) {
	t.Parallel()
	merchant := map[string]string{
		"MUSTER_MERCHANT_NAME":    "M",
		"MUSTER_MERCHANT_ADDRESS": "1 Street",
		"MUSTER_MERCHANT_COUNTRY": "DE",
	}
	key := map[string]string{"MUSTER_STRIPE_KEY": "sk_test_x"}
	for _, tc := range []struct {
		env  []map[string]string
		good bool
		want tax.Taxer
	}{
		{nil, true, tax.Flat{Rates: tax.EU()}},
		{[]map[string]string{merchant}, true, tax.Flat{Home: "DE", Rates: tax.EU()}},
		{[]map[string]string{{"MUSTER_TAX_RATES": "off"}}, true, tax.None{}},
		{[]map[string]string{key, merchant}, true, tax.None{}},
		{[]map[string]string{key, merchant, {"MUSTER_TAX_RATES": "DE=19%"}}, true, tax.Flat{
			Home:  "DE",
			Rates: map[string]int64{"DE": 190_000},
		}},
		{[]map[string]string{key, {"MUSTER_TAX_RATES": "eu"}}, false, tax.Flat{Rates: tax.EU()}},
		{[]map[string]string{merchant, {"MUSTER_TAX_RATES": "DE=19"}}, false, tax.None{}},
		{[]map[string]string{merchant, {"MUSTER_TAX_RATES": "XX=19%"}}, false, tax.None{}},
	} {
		env := map[string]string{}
		for _, m := range tc.env {
			maps.Copy(env, m)
		}
		c, err := LoadConfig(env)
		if err != nil {
			t.Fatal(err)
		}
		got, _ := c.taxer()
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%v:\n%s", env, diff)
		}
		err = c.Validate() // other settings are missing here: only what is said of taxes counts
		refused := slices.ContainsFunc(fault.From(err).Fields,
			func(f fault.Field) bool { return f.Location == "MUSTER_TAX_RATES" })
		if refused == tc.good {
			t.Errorf("%v: %+v", env, fault.From(err).Fields)
		}
	}
}
