package agentapi

import (
	"bytes"
	"crypto/ed25519"
	"testing"

	"github.com/musterhq/muster/internal/merkle"
)

// Each segment of a signed list proves itself by the list's signature; none of a list that is too short, of another
// host, or at another place does.
func TestSegmentsProveThemselvesInAList(t *testing.T) {
	t.Parallel()
	public, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 {
		segs, hashes := make([]Segment, n), make([][32]byte, n)
		for i := range segs {
			segs[i] = Segment{Lease: "ls_a", Epoch: 1, BootID: "b", Seq: int64(i + 1), StartMS: int64(i), EndMS: int64(i + 1)}
			hashes[i] = segs[i].Hash("host_1")
		}
		signature := SignBatch("host_1", segs, key)
		if (signature != nil) != (n >= MinBatch) {
			t.Fatalf("%d segments: signature %x", n, signature)
		}
		if signature == nil {
			continue
		}
		for i := range segs {
			segs[i].Signature = signature
			in := InBatch{Size: n, Position: i, Path: merkle.Path(hashes, i)}
			if err := segs[i].VerifyInBatch("host_1", public, in); err != nil {
				t.Fatalf("%d of %d: %v", i, n, err)
			}
			if segs[i].VerifyInBatch("host_2", public, in) == nil || segs[i].Verify("host_1", public) == nil {
				t.Fatalf("%d of %d holds for another host or alone", i, n)
			}
			if in.Position = (i + 1) % n; segs[i].VerifyInBatch("host_1", public, in) == nil {
				t.Fatalf("%d of %d holds at another place", i, n)
			}
		}
	}
}

// What is signed never changes: lists of years ago must go on to verify.
func TestBatchPayloadIsForEver(t *testing.T) {
	t.Parallel()
	want := append([]byte("muster-segment-batch-v1\x00\x00\x00\x00\x06host_1\x00\x00\x00\x00\x00\x00\x00\x09"),
		bytes.Repeat([]byte{7}, 32)...)
	if got := BatchPayload("host_1", 9, [32]byte(bytes.Repeat([]byte{7}, 32))); !bytes.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
