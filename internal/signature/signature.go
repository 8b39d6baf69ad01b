// Package signature checks Ed25519 signatures, one at a time or many at once, by one rule.
//
// The rule is that of RFC 8032, 5.1.7, whose equation has the cofactor in it: a signature (R, S) of a message M by the
// key A is valid when S is below the group's order, R is the canonical encoding of a point, and 8·S·B = 8·R +
// 8·SHA-512(R,A,M)·A.
//
//   - Verify and VerifyAll agree on every signature, but for a chance of 2⁻¹²⁵ that VerifyAll takes a forged one.
//   - Whatever crypto/ed25519.Verify accepts is valid. The other way round they differ only where the signer has hidden
//     a point of small order in R or A, which takes the private key: only the signer can make such a signature.
//
// Why the equation has the cofactor: without it, many checked at once and each checked alone cannot agree. See
// docs/adr/0009-signed-usage-and-the-ledgers-chain.md.
package signature

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha512"
	"encoding/binary"

	"filippo.io/edwards25519"
)

// Signed is a message with its signature and the key it should be by.
type Signed struct {
	Key       ed25519.PublicKey
	Message   []byte
	Signature []byte
}

// Verify reports whether the signature is valid.
func Verify(s Signed) bool {
	if len(s.Key) != ed25519.PublicKeySize {
		return false
	}
	if ed25519.Verify(s.Key, s.Message, s.Signature) { // faster, and valid by the rule too
		return true
	}
	c, ok := read(s)
	return ok && holds([]claim{c})
}

// batchSize is how many signatures one equation holds: larger batches are no cheaper per signature.
const batchSize = 256

// VerifyAll reports for each signature whether it is valid. If all are, it takes a third of the time of Verify for
// each; finding invalid ones takes longer.
func VerifyAll(all []Signed) []bool {
	out := make([]bool, len(all))
	var claims []claim
	for i, s := range all {
		if c, ok := read(s); ok {
			c.at = i
			claims = append(claims, c)
		}
	}
	for len(claims) > 0 {
		n := min(len(claims), batchSize)
		judge(claims[:n], out)
		claims = claims[n:]
	}
	return out
}

// judge marks the valid claims, dividing them into halves if not all are valid.
func judge(claims []claim, out []bool) {
	switch {
	case holds(claims):
		for _, c := range claims {
			out[c.at] = true
		}
	case len(claims) > 1:
		judge(claims[:len(claims)/2], out)
		judge(claims[len(claims)/2:], out)
	}
}

// claim is a parsed signature: s·B = r + h·A.
type claim struct {
	at   int // index in the caller's list
	key  [32]byte
	r    edwards25519.Point
	s, h edwards25519.Scalar
}

// read parses a signature; ok is false if it cannot be valid for any message.
func read(s Signed) (c claim, ok bool) {
	if len(s.Key) != ed25519.PublicKeySize || len(s.Signature) != ed25519.SignatureSize || !canonical(s.Signature[:32]) {
		return c, false
	}
	if _, err := c.r.SetBytes(s.Signature[:32]); err != nil {
		return c, false
	}
	if _, err := c.s.SetCanonicalBytes(s.Signature[32:]); err != nil {
		return c, false
	}
	hash := sha512.New()
	hash.Write(s.Signature[:32])
	hash.Write(s.Key)
	hash.Write(s.Message)
	var sum [sha512.Size]byte
	if _, err := c.h.SetUniformBytes(hash.Sum(sum[:0])); err != nil {
		return c, false
	}
	copy(c.key[:], s.Key)
	return c, true
}

// holds reports whether 8·Σ zᵢ·(sᵢ·B − rᵢ − hᵢ·Aᵢ) is zero, for random zᵢ of 128 bits: it always is when all are valid,
// and with a chance of 2⁻¹²⁵ at most when one is not.
func holds(claims []claim) bool {
	byKey := map[[32]byte]*edwards25519.Scalar{} // Σ zᵢ·hᵢ, of each key
	base := edwards25519.NewScalar()             // Σ zᵢ·sᵢ
	scalars := make([]*edwards25519.Scalar, 0, len(claims)+2)
	points := make([]*edwards25519.Point, 0, len(claims)+2)
	random := make([]byte, 16*len(claims))
	rand.Read(random)
	for i := range claims {
		c := &claims[i]
		z := edwards25519.NewScalar()
		var wide [32]byte
		copy(wide[:16], random[16*i:])
		if _, err := z.SetCanonicalBytes(wide[:]); err != nil {
			return false
		}
		base.MultiplyAdd(z, &c.s, base)
		sum := byKey[c.key]
		if sum == nil {
			sum = edwards25519.NewScalar()
			byKey[c.key] = sum
		}
		sum.MultiplyAdd(z, &c.h, sum)
		scalars, points = append(scalars, z), append(points, &c.r)
	}
	for key, sum := range byKey {
		a, err := new(edwards25519.Point).SetBytes(key[:])
		if err != nil {
			return false
		}
		scalars, points = append(scalars, sum), append(points, a)
	}
	scalars, points = append(scalars, base.Negate(base)), append(points, edwards25519.NewGeneratorPoint())
	all := new(edwards25519.Point).VarTimeMultiScalarMult(scalars, points)
	return all.MultByCofactor(all).Equal(edwards25519.NewIdentityPoint()) == 1
}

// canonical reports whether the 32 bytes are the shortest encoding of their point: y is below 2²⁵⁵−19, and x = 0 has no
// sign. It does not check whether such a point exists.
func canonical(b []byte) bool {
	w := [4]uint64{}
	for i := range w {
		w[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	sign := w[3]>>63 == 1
	w[3] &^= 1 << 63
	const ones = ^uint64(0)
	high := w[1] == ones && w[2] == ones && w[3] == ones>>1
	switch {
	case high && w[0] >= ones-18: // y ≥ p
		return false
	case sign && (high && w[0] == ones-19 || w[0] == 1 && w[1]|w[2]|w[3] == 0): // y = −1 or 1
		return false
	}
	return true
}
