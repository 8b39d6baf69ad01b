package seal

import (
	"bytes"
	"testing"
)

func TestOpensOnlyItsOwn(t *testing.T) {
	t.Parallel()
	b, err := NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	s := b.Seal([]byte("secret"), "cluster:1")
	if got, err := b.Open(s, "cluster:1"); err != nil || string(got) != "secret" {
		t.Fatalf("%q %v", got, err)
	}
	if _, err := b.Open(s, "cluster:2"); err == nil {
		t.Error("opened for another object")
	}
	s[len(s)-1] ^= 1
	if _, err := b.Open(s, "cluster:1"); err == nil {
		t.Error("opened after a bit flip")
	}
	if _, err := NewBox([]byte("short")); err == nil {
		t.Error("took a short secret")
	}
}
