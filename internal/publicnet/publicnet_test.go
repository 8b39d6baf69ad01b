package publicnet

import (
	"errors"
	"net/netip"
	"testing"
)

func TestContains(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"8.8.8.8": true, "2606:4700:4700::1111": true, "::ffff:8.8.8.8": true,
		"127.0.0.1": false, "10.0.0.1": false, "172.16.0.1": false, "192.168.1.1": false, "169.254.169.254": false,
		"100.64.0.1": false, "0.0.0.0": false, "224.0.0.1": false, "255.255.255.255": false, "::1": false, "::": false,
		"fe80::1": false, "fd00::1": false, "::ffff:10.0.0.1": false, "64:ff9b::a00:1": false, "2002:7f00:1::": false,
		"168.63.129.16": false, "ff02::1": false,
	} {
		if got := Contains(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: on the internet: %v", text, got)
		}
	}
}

func TestHost(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]bool{
		"s3.example.com": true, "8.8.8.8": true, "localhost": false, "LocalHost.": false, "a.localhost": false,
		"metadata.google.internal": false, "printer.local": false, "127.0.0.1": false, "::1": false,
	} {
		if got := Host(text); got != want {
			t.Errorf("%s: may be on the internet: %v", text, got)
		}
	}
}

func TestControl(t *testing.T) {
	t.Parallel()
	if err := Control("tcp4", "8.8.8.8:443", nil); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"127.0.0.1:443", "[::1]:443", "10.0.0.1:80", "nonsense"} {
		if err := Control("tcp", text, nil); !errors.Is(err, ErrOutside) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
