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

func TestAnotherSecretOpensAndSealsNothing(t *testing.T) {
	t.Parallel()
	old, err := NewBox(bytes.Repeat([]byte{7}, 32))
	if err != nil {
		t.Fatal(err)
	}
	b, err := NewRotatingBox(bytes.Repeat([]byte{8}, 32), bytes.Repeat([]byte{7}, 32))
	if err != nil || !b.Rotating() || old.Rotating() {
		t.Fatal(err)
	}
	s := old.Seal([]byte("secret"), "cluster:1")
	if got, err := b.Open(s, "cluster:1"); err != nil || string(got) != "secret" {
		t.Fatalf("%q %v", got, err)
	}
	fresh, stale, err := b.Reseal(s, "cluster:1")
	if err != nil || !stale {
		t.Fatal(stale, err)
	}
	if _, err := old.Open(fresh, "cluster:1"); err == nil {
		t.Error("the old secret opens what was sealed again")
	}
	if _, stale, err := b.Reseal(fresh, "cluster:1"); err != nil || stale {
		t.Error(stale, err)
	}
	if _, _, err := b.Reseal(s, "cluster:2"); err == nil {
		t.Error("sealed again for another object")
	}
	d := []byte("data")
	if !b.Verify(d, b.MAC(d)) || !b.Verify(d, old.MAC(d)) || old.Verify(d, b.MAC(d)) ||
		!bytes.Equal(b.OtherMAC(d), old.MAC(d)) || old.OtherMAC(d) != nil {
		t.Error("fingerprints")
	}
	if _, err := NewRotatingBox(bytes.Repeat([]byte{8}, 32), []byte("short")); err == nil {
		t.Error("took a short secret")
	}
}
