package metering

import (
	"crypto/sha256"
	"runtime"
	"slices"
	"sync"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
	"github.com/musterhq/muster/internal/merkle"
	"github.com/musterhq/muster/internal/signature"
)

// manySegments is from how many on they are hashed and verified on several cores.
const manySegments = 32

// batch is a list of segments that its host signed as a whole.
type batch struct {
	id        int64 // drawn by the transaction that may store it
	signature []byte
	hashes    []byte // of all segments that were signed, 32 bytes each, whatever becomes of them
}

// batchesOf returns the batches of the segments, each once.
func batchesOf(rs []*received) (out []*batch) {
	for _, r := range rs { // those of one come together
		if r.batch != nil && (len(out) == 0 || out[len(out)-1] != r.batch) {
			out = append(out, r.batch)
		}
	}
	return out
}

// receive checks what needs no database but the hosts' keys: shape and signature. Its result is in the order of the
// deliveries.
func receive(in []Delivery, keys map[id.Host][][]byte) []*received {
	var out []*received
	parts := make([][]*received, len(in)) // of out
	for i, v := range in {
		from := len(out)
		for _, s := range v.Segments {
			out = append(out, &received{Segment: s, host: v.Host})
		}
		parts[i] = out[from:]
	}
	spread(len(in), len(out), func(i, j int) { checkLists(in[i:j], parts[i:j], keys) })
	alone := slices.DeleteFunc(slices.Clone(out), func(r *received) bool { return r.refused != "" || r.batch != nil })
	// Neighbours stay together: signatures by one key are the cheapest to check at once.
	spread(len(alone), len(alone), func(i, j int) { checkAlone(alone[i:j], keys) })
	checkFacts(out, keys) // few have any
	return out
}

// spread calls f for parts of n things that hold a number of segments, on several cores if that is worth it.
func spread(n, segments int, f func(i, j int)) {
	workers := 1
	if segments >= manySegments {
		workers = min(n, runtime.GOMAXPROCS(0))
	}
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() { f(w*n/workers, (w+1)*n/workers) })
	}
	wg.Wait()
}

// checkLists hashes the deliveries' segments, refuses those that are malformed, and puts those into a batch whose
// delivery is signed as a whole by a key of its host.
func checkLists(in []Delivery, parts [][]*received, keys map[id.Host][][]byte) {
	var asked []int
	var signed []signature.Signed
	for i, v := range in {
		name := v.Host.String()
		for _, r := range parts[i] {
			r.hash = r.Hash(name)
			var err error
			r.lease, err = id.Parse[id.Lease](r.Lease)
			switch {
			case err != nil || !r.inRange():
				r.refused = refusedMalformed
			case len(keys[r.host]) == 0 || r.CheckShape() != nil:
				r.refused = refusedSignature
			}
		}
		if len(v.Signature) > 0 && len(parts[i]) >= agentapi.MinBatch && len(keys[v.Host]) > 0 {
			asked = append(asked, i)
			signed = append(signed, signature.Signed{
				Key:       keys[v.Host][0],
				Message:   agentapi.BatchPayload(name, len(parts[i]), rootOf(parts[i])),
				Signature: v.Signature,
			})
		}
	}
	for k, valid := range signature.VerifyAll(signed) {
		v, rs := in[asked[k]], parts[asked[k]]
		if !valid && !signedByAny(signed[k], keys[v.Host][1:]) {
			continue
		}
		b := &batch{signature: v.Signature, hashes: make([]byte, 0, len(rs)*sha256.Size)}
		for i, r := range rs {
			b.hashes = append(b.hashes, r.hash[:]...)
			r.batch, r.position = b, i
		}
	}
}

func rootOf(rs []*received) [32]byte {
	hashes := make([][32]byte, len(rs))
	for i, r := range rs {
		hashes[i] = r.hash
	}
	return merkle.Root(hashes)
}

// checkAlone refuses segments that are not signed by a key of their host.
func checkAlone(rs []*received, keys map[id.Host][][]byte) {
	signed := make([]signature.Signed, len(rs))
	for i, r := range rs {
		signed[i] = signature.Signed{Key: keys[r.host][0], Message: r.Payload(r.host.String()), Signature: r.Signature}
	}
	for i, valid := range signature.VerifyAll(signed) {
		if !valid && !signedByAny(signed[i], keys[rs[i].host][1:]) {
			rs[i].refused = refusedSignature
		}
	}
}

func signedByAny(s signature.Signed, keys [][]byte) bool {
	for _, s.Key = range keys {
		if signature.Verify(s) {
			return true
		}
	}
	return false
}
