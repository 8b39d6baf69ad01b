package signature_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha512"
	"fmt"
	"math/rand/v2"
	"testing"

	"filippo.io/edwards25519"

	"github.com/musterhq/muster/internal/signature"
)

func key(n int) ed25519.PrivateKey { return ed25519.NewKeyFromSeed([]byte(fmt.Sprintf("%032d", n))) }

func sign(k ed25519.PrivateKey, message string) signature.Signed {
	return signature.Signed{
		Key:       k.Public().(ed25519.PublicKey),
		Message:   []byte(message),
		Signature: ed25519.Sign(k, []byte(message)),
	}
}

// agree checks that Verify and VerifyAll say what is wanted of each.
func agree(t *testing.T, all []signature.Signed, want []bool) {
	t.Helper()
	got := signature.VerifyAll(all)
	for i, s := range all {
		if one := signature.Verify(s); one != want[i] || got[i] != want[i] {
			t.Errorf("%d: alone %t, among %d %t; want %t", i, one, len(all), got[i], want[i])
		}
		if len(s.Key) == ed25519.PublicKeySize && ed25519.Verify(s.Key, s.Message, s.Signature) && !want[i] {
			t.Errorf("%d: crypto/ed25519 takes it, and we are to refuse it", i)
		}
	}
}

func TestManyAreJudgedAsEachAlone(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int{0, 1, 2, 7, 255, 257, 600} {
		var all []signature.Signed
		var want []bool
		for i := range n {
			s, good := sign(key(r.IntN(5)), fmt.Sprint(i)), true
			if r.IntN(40) == 0 {
				good = false
				switch r.IntN(7) {
				case 0:
					s.Message = append(s.Message, 'x')
				case 1:
					s.Signature[r.IntN(64)] ^= 1 << r.IntN(8)
				case 2:
					s.Key = sign(key(9), "").Key
				case 3:
					s.Signature = s.Signature[:63]
				case 4:
					s.Key = nil
				case 5:
					s.Signature = make([]byte, 64)
				case 6:
					s.Signature = bytes.Repeat([]byte{0xff}, 64)
				}
			}
			all, want = append(all, s), append(want, good)
		}
		agree(t, all, want)
	}
}

// Two wrong ones that would cancel each other without random factors do not.
func TestErrorsDoNotCancel(t *testing.T) {
	t.Parallel()
	a, b := sign(key(1), "a"), sign(key(1), "b")
	one := make([]byte, 32)
	one[0] = 1
	shift := func(s []byte, by func(s, one *edwards25519.Scalar) *edwards25519.Scalar) {
		v, err := new(edwards25519.Scalar).SetCanonicalBytes(s)
		if err != nil {
			t.Fatal(err)
		}
		o, err := new(edwards25519.Scalar).SetCanonicalBytes(one)
		if err != nil {
			t.Fatal(err)
		}
		copy(s, by(v, o).Bytes())
	}
	shift(a.Signature[32:], func(s, one *edwards25519.Scalar) *edwards25519.Scalar { return s.Add(s, one) })
	shift(b.Signature[32:], func(s, one *edwards25519.Scalar) *edwards25519.Scalar { return s.Subtract(s, one) })
	agree(t, []signature.Signed{a, b}, []bool{false, false})
}

// torsioned signs as only the holder of the key can: with a point of order 8, 4 or 2 hidden in R.
func torsioned(t *testing.T, k ed25519.PrivateKey, message string, times int) signature.Signed {
	t.Helper()
	// A point of order 8 (RFC 7748's list of points of small order, on Edwards' curve).
	small, err := new(edwards25519.Point).SetBytes([]byte{
		0xc7, 0x17, 0x6a, 0x70, 0x3d, 0x4d, 0xd8, 0x4f, 0xba, 0x3c, 0x0b, 0x76, 0x0d, 0x10, 0x67, 0x0f,
		0x2a, 0x20, 0x53, 0xfa, 0x2c, 0x39, 0xcc, 0xc6, 0x4e, 0xc7, 0xfd, 0x77, 0x92, 0xac, 0x03, 0x7a})
	if err != nil {
		t.Fatal(err)
	}
	digest := sha512.Sum512(k.Seed())
	a, err := new(edwards25519.Scalar).SetBytesWithClamping(digest[:32])
	if err != nil {
		t.Fatal(err)
	}
	nonce := sha512.Sum512([]byte("nonce" + message))
	r, err := new(edwards25519.Scalar).SetUniformBytes(nonce[:])
	if err != nil {
		t.Fatal(err)
	}
	point := new(edwards25519.Point).ScalarBaseMult(r)
	for range times {
		point.Add(point, small)
	}
	public := k.Public().(ed25519.PublicKey)
	sum := sha512.Sum512(append(append(point.Bytes(), public...), message...))
	h, err := new(edwards25519.Scalar).SetUniformBytes(sum[:])
	if err != nil {
		t.Fatal(err)
	}
	s := new(edwards25519.Scalar).MultiplyAdd(h, a, r)
	return signature.Signed{Key: public, Message: []byte(message), Signature: append(point.Bytes(), s.Bytes()...)}
}

// Where the equations with and without cofactor differ, one and many still agree, every time.
func TestSmallOrderIsJudgedTheSameAloneAndAmongMany(t *testing.T) {
	t.Parallel()
	for times := range 8 {
		s := torsioned(t, key(3), "m", times)
		if plain := ed25519.Verify(s.Key, s.Message, s.Signature); plain != (times == 0) {
			t.Fatalf("%d times: crypto/ed25519 says %t: this tests nothing", times, plain)
		}
		for range 8 {
			agree(t, []signature.Signed{s, torsioned(t, key(3), "n", 8-times), sign(key(4), "o")}, []bool{true, true, true})
		}
	}
}

// A second way to write the same point would be a second signature of the same message.
func TestOtherWritingsOfAPointAreRefused(t *testing.T) {
	t.Parallel()
	p := []byte{0xed, 31: 0x7f}
	for i := 1; i < 31; i++ {
		p[i] = 0xff
	}
	for _, y := range []byte{0, 1, 2, 18} { // p + y
		r := bytes.Clone(p)
		r[0] += y
		for _, sign := range []byte{0, 0x80} {
			r[31] = 0x7f | sign
			s := signature.Signed{
				Key:       key(1).Public().(ed25519.PublicKey),
				Message:   []byte("m"),
				Signature: append(bytes.Clone(r), make([]byte, 32)...),
			}
			agree(t, []signature.Signed{s, sign2(1)}, []bool{false, true})
		}
	}
}

func sign2(n int) signature.Signed { return sign(key(n), "fine") }

func FuzzVerifyTakesWhatCryptoDoes(f *testing.F) {
	good := sign(key(1), "m")
	f.Add([]byte(good.Key), good.Message, good.Signature)
	f.Fuzz(func(t *testing.T, key, message, sig []byte) {
		s := signature.Signed{Key: key, Message: message, Signature: sig}
		one := signature.Verify(s)
		if many := signature.VerifyAll([]signature.Signed{s, sign2(1)}); many[0] != one || !many[1] {
			t.Fatalf("alone %t, among others %v", one, many)
		}
		if len(key) == ed25519.PublicKeySize && ed25519.Verify(key, message, sig) && !one {
			t.Fatal("crypto/ed25519 takes it")
		}
	})
}

func BenchmarkVerify(b *testing.B) {
	s := sign(key(1), string(make([]byte, 200)))
	for b.Loop() {
		signature.Verify(s)
	}
}

func BenchmarkVerifyAll(b *testing.B) {
	var all []signature.Signed
	for i := range 256 {
		all = append(all, sign(key(i/8), fmt.Sprintf("%200d", i)))
	}
	for b.Loop() {
		signature.VerifyAll(all)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(all)), "ns/signature")
}
