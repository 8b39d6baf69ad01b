package gateway

import (
	"bytes"
	"strings"
	"testing"
)

func TestSocketOutput_BeginsBehindTheGreeting(t *testing.T) {
	t.Parallel()
	o := newSocketOutput()
	for _, part := range []string{"conn", "ected\nHE"} {
		done := make(chan struct{})
		go func() {
			defer close(done)
			if n, err := o.Write([]byte(part)); n != len(part) || err != nil {
				t.Errorf("%q: %d %v", part, n, err)
			}
		}()
		if part == "conn" {
			within(t, "a part of the greeting is taken", done)
			continue
		}
		within(t, "it is connected", o.ready)
		var to bytes.Buffer
		o.release(&to)
		within(t, "the output is passed on", done)
		if to.String() != "HE" {
			t.Errorf("%q", to.String())
		}
	}
	if _, err := newSocketOutput().Write([]byte("Welcome to the node")); err == nil {
		t.Error("a shell of an older agent is taken for a socket")
	}
	ended := newSocketOutput()
	ended.end()
	if _, err := ended.Write([]byte("connected\nx")); err == nil {
		t.Error("output is taken that is passed on to no channel")
	}
	for errs, want := range map[string]string{"usage: muster-guest hold": tooOld, "": tooOld,
		"nothing listens on the socket /x\n": "nothing listens on the socket /x",
		strings.Repeat("x", 900):             strings.Repeat("x", 500)} {
		var f firstBytes
		if _, err := f.Write([]byte(errs)); err != nil || f.line() != want {
			t.Errorf("%.20q: %q %v", errs, f.line(), err)
		}
	}
}
