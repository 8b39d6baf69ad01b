// Package seal encrypts secrets at rest: renters' environment and registry credentials, answers that carry a token.
//
// A box is one 32-byte key; sealed data is version | nonce | AES-256-GCM, bound to what it belongs to, so that a row
// copied elsewhere does not open.
package seal

import (
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

// Box seals and opens. Safe for concurrent use.
type Box struct {
	aead cipher.AEAD
	mac  []byte
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
	return &Box{aead, mac}, nil
}

// Seal encrypts plain for the object named by belongs ("cluster:<id>").
func (b *Box) Seal(plain []byte, belongs string) []byte {
	out := make([]byte, 1+b.aead.NonceSize(), 1+b.aead.NonceSize()+len(plain)+b.aead.Overhead())
	out[0] = version
	rand.Read(out[1:])
	return b.aead.Seal(out, out[1:], plain, []byte(belongs))
}

// Open is the inverse of Seal. It fails when the data was altered, belongs elsewhere, or another key sealed it.
func (b *Box) Open(sealed []byte, belongs string) ([]byte, error) {
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

// MAC is a keyed fingerprint of data: equal data can be recognised, and nothing else learned from it.
func (b *Box) MAC(data []byte) []byte {
	m := hmac.New(sha256.New, b.mac)
	m.Write(data)
	return m.Sum(nil)
}
