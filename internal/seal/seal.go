// Package seal encrypts stored secrets: renters' environment variables and registry credentials, and responses that
// contain a token.
//
// A box is one 32-byte key; sealed data is version | nonce | AES-256-GCM, bound to the object that it belongs to, so
// that a row copied elsewhere does not open.
package seal

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
)

const version = 1

// Box seals and opens. It is safe for concurrent use.
type Box struct {
	aead  cipher.AEAD
	mac   []byte
	other *Box // also opens and verifies; nil: none
}

// NewRotatingBox is NewBox with a second secret, which opens and verifies but neither seals nor signs: while the
// platform's secret changes, replicas and rows use either.
func NewRotatingBox(secret, other []byte) (*Box, error) {
	b, err := NewBox(secret)
	if err != nil {
		return nil, err
	}
	b.other, err = NewBox(other)
	return b, err
}

// NewBox derives its keys from a secret of at least 32 bytes. Every replica needs the same one.
func NewBox(secret []byte) (*Box, error) {
	if len(secret) < 32 {
		return nil, errors.New("the sealing secret must have at least 32 bytes")
	}
	key, err := hkdf.Key(sha256.New, secret, nil, "muster seal v1", 32)
	if err != nil {
		return nil, err
	}
	mac, err := hkdf.Key(sha256.New, secret, nil, "muster mac v1", 32)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &Box{aead: aead, mac: mac}, nil
}

// Seal encrypts plain for the object that belongs names, such as "cluster:<id>".
func (b *Box) Seal(plain []byte, belongs string) []byte {
	out := make([]byte, 1+b.aead.NonceSize(), 1+b.aead.NonceSize()+len(plain)+b.aead.Overhead())
	out[0] = version
	rand.Read(out[1:])
	return b.aead.Seal(out, out[1:], plain, []byte(belongs))
}

// Open is the inverse of Seal, by either secret. It fails if the data was altered, belongs to another object, or was
// sealed by a third secret.
func (b *Box) Open(sealed []byte, belongs string) ([]byte, error) {
	plain, err := b.open(sealed, belongs)
	if err != nil && b.other != nil {
		if plain, err2 := b.other.open(sealed, belongs); err2 == nil {
			return plain, nil
		}
	}
	return plain, err
}

// Rotating reports whether a second secret is accepted.
func (b *Box) Rotating() bool { return b.other != nil }

// Reseal seals with the first secret what the second one sealed. For data that the first secret sealed, stale is false
// and fresh is nil. It fails where Open does.
func (b *Box) Reseal(sealed []byte, belongs string) (fresh []byte, stale bool, err error) {
	if _, err = b.open(sealed, belongs); err == nil || b.other == nil {
		return nil, false, err
	}
	plain, err := b.other.open(sealed, belongs)
	if err != nil {
		return nil, false, err
	}
	return b.Seal(plain, belongs), true, nil
}

// resealRows is how many rows ResealAll reads at once.
const resealRows = 500

// ResealAll seals again, with the first secret of b, all rows that the second one sealed, and returns how many. read
// returns at most limit rows whose keys are greater than after, in the order of their keys. of takes a row apart. write
// replaces stale by fresh unless the row has changed, and returns how many rows it replaced. Rows that neither secret
// opens are passed over, and counted in an error after all others are done.
func ResealAll[K, R any](ctx context.Context, b *Box, after K,
	read func(ctx context.Context, after K, limit int32) ([]R, error),
	of func(row R) (key K, sealed []byte, belongs string),
	write func(ctx context.Context, fresh []byte, key K, stale []byte) (int64, error)) (n int, err error) {
	unopened := 0
	for {
		rows, err := read(ctx, after, resealRows)
		if err != nil {
			return n, fmt.Errorf("read sealed rows: %w", err)
		}
		for _, r := range rows {
			key, sealed, belongs := of(r)
			after = key
			fresh, stale, err := b.Reseal(sealed, belongs)
			if err != nil {
				unopened++
			}
			if !stale {
				continue
			}
			did, err := write(ctx, fresh, key, sealed)
			if err != nil {
				return n, fmt.Errorf("seal %s again: %w", belongs, err)
			}
			n += int(did)
		}
		if len(rows) < resealRows {
			break
		}
	}
	if unopened > 0 {
		return n, fmt.Errorf("rows that neither secret opens: %d", unopened)
	}
	return n, nil
}

func (b *Box) open(sealed []byte, belongs string) ([]byte, error) {
	n := 1 + b.aead.NonceSize()
	if len(sealed) < n || sealed[0] != version {
		return nil, errors.New("sealed data has an unknown form")
	}
	plain, err := b.aead.Open(nil, sealed[1:n], sealed[n:], []byte(belongs))
	if err != nil {
		return nil, fmt.Errorf("sealed data for %s does not open: altered, or sealed with another key", belongs)
	}
	return plain, nil
}

// MAC returns a keyed fingerprint of data, by which equal data is recognised and nothing else is learned.
func (b *Box) MAC(data []byte) []byte {
	m := hmac.New(sha256.New, b.mac)
	m.Write(data)
	return m.Sum(nil)
}

// OtherMAC returns the MAC by the second secret; nil if there is none.
func (b *Box) OtherMAC(data []byte) []byte {
	if b.other == nil {
		return nil
	}
	return b.other.MAC(data)
}

// Verify reports whether mac is the MAC of data by either secret.
func (b *Box) Verify(data, mac []byte) bool {
	return hmac.Equal(mac, b.MAC(data)) || b.other != nil && hmac.Equal(mac, b.other.MAC(data))
}
