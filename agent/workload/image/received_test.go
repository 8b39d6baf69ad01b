package image

import (
	"crypto/rand"
	"net"
	"runtime"
	"testing"
)

// All that a registry on the internet sends is counted; what one at a private address sends is not.
func TestWhatComesFromPublicRegistriesIsCounted(t *testing.T) {
	t.Parallel()
	const size = 300_000
	content := make([]byte, size) // does not get smaller packed
	rand.Read(content)
	host := serve(t, nil)
	push(t, host+"/app:1", build(t, runtime.GOARCH, layer(t, map[string][]byte{"a": content})))
	e := setUp(t, host)
	e.pull(Request{Image: host + "/app:1"}, "")
	if n := e.puller.Received(); n != 0 {
		t.Errorf("%d bytes of a private registry are counted", n)
	}
	e = setUp(t, host)
	e.puller.guard.counts = func(to net.Addr) bool { return to.String() == host }
	e.pull(Request{Image: host + "/app:1"}, "")
	once := e.puller.Received()
	if once < size || once > size+size/4 {
		t.Errorf("%d bytes are counted of a layer of %d", once, size)
	}
	e.pull(Request{Image: host + "/app:1"}, "") // the image is here: its manifest is looked at
	if n := e.puller.Received() - once; n <= 0 || n > size/4 {
		t.Errorf("%d bytes for what was here", n)
	}
}

func TestConnectionsToTheInternetCount(t *testing.T) {
	t.Parallel()
	counts := newGuard(nil).counts
	for s, want := range map[string]bool{
		"8.8.8.8":         true,
		"2606:4700::1111": true,
		"192.168.1.1":     false,
		"127.0.0.1":       false,
		"fd00::1":         false,
	} {
		if got := counts(&net.TCPAddr{IP: net.ParseIP(s), Port: 443}); got != want {
			t.Errorf("%s: %v", s, got)
		}
	}
}
