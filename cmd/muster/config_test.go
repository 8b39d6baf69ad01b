package main

import (
	"net/netip"
	"slices"
	"testing"
)

func TestTrustedProxiesAreRead(t *testing.T) {
	t.Parallel()
	c, err := loadServerConfig(map[string]string{"MUSTER_TRUSTED_PROXIES": "10.0.0.0/8,::1/128"})
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}
	if err != nil || !slices.Equal(c.TrustedProxies, want) {
		t.Errorf("%v %v", c.TrustedProxies, err)
	}
	if _, err := loadServerConfig(map[string]string{"MUSTER_TRUSTED_PROXIES": "everybody"}); err == nil {
		t.Error("took nonsense")
	}
}
