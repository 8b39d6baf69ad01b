package chunk

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"
)

// An ID names a chunk: the hash of its bytes under the key of its domain.
type ID [32]byte

// String returns the ID in hexadecimal.
func (id ID) String() string { return hex.EncodeToString(id[:]) }

// Keys are what a domain's key gives: one key for ids, one that each chunk's own key comes from, one for tables, and
// one for requests between hosts. They are safe for concurrent use.
type Keys struct {
	id, chunks, tables, peers []byte
}

// KeySize is the length of a domain's key in bytes.
const KeySize = 32

// NewKeys derives the keys of a domain from its key of KeySize random bytes.
func NewKeys(domain []byte) (*Keys, error) {
	if len(domain) != KeySize {
		return nil, fmt.Errorf("a domain's key has %d bytes, not %d", len(domain), KeySize)
	}
	k := new(Keys)
	for label, key := range map[string]*[]byte{
		"muster chunk id v1": &k.id, "muster chunk seal v1": &k.chunks, "muster pack table v1": &k.tables,
		"muster peer request v1": &k.peers,
	} {
		derived, err := hkdf.Key(sha256.New, domain, nil, label, KeySize)
		if err != nil {
			return nil, fmt.Errorf("derive the key %q: %w", label, err)
		}
		*key = derived
	}
	return k, nil
}

// ID returns the id of a chunk.
func (k *Keys) ID(chunk []byte) (id ID) {
	h, err := blake3.NewKeyed(k.id)
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	_, _ = h.Write(chunk)
	h.Sum(id[:0])
	return id
}

// Sign returns a code by which those who hold the key of the domain recognise each other's requests.
func (k *Keys) Sign(request []byte) []byte {
	m := hmac.New(sha256.New, k.peers)
	m.Write(request)
	return m.Sum(nil)
}

// What the first byte of a blob says about the sealed bytes.
const (
	flagRaw  = 0
	flagZstd = 1
)

// Overhead is how many bytes longer than its chunk a blob may be: flag, nonce and tag.
const Overhead = 1 + 12 + 16

// Seal appends to dst the blob of a chunk with this id: compressed if that saves at least 1/32, then encrypted under a
// key of the chunk's own with a random nonce. Two blobs of one chunk differ.
func (k *Keys) Seal(dst []byte, id ID, chunk []byte) ([]byte, error) {
	if len(chunk) > MaxSize {
		return nil, fmt.Errorf("%d bytes are more than a chunk may have", len(chunk))
	}
	body, flag := chunk, byte(flagRaw)
	if packed := encoder().EncodeAll(chunk, nil); len(packed) <= len(chunk)-max(1, len(chunk)/32) {
		body, flag = packed, flagZstd
	}
	aead, err := gcm(k.chunks, id[:])
	if err != nil {
		return nil, err
	}
	return sealWith(aead, dst, flag, body, id[:]), nil
}

// Open returns the chunk of a blob. It fails with ErrCorrupt unless the blob was sealed for this id in this domain and
// its bytes have this id.
func (k *Keys) Open(id ID, blob []byte) ([]byte, error) { return k.open(nil, id, blob) }

// OpenInPlace is Open without a copy: the chunk may lie in blob, which is overwritten in any case.
func (k *Keys) OpenInPlace(id ID, blob []byte) ([]byte, error) {
	if len(blob) < Overhead {
		return nil, ErrCorrupt
	}
	return k.open(blob[sealedAt:sealedAt], id, blob)
}

// open opens a blob into dst, which is nil or where the sealed bytes are.
func (k *Keys) open(dst []byte, id ID, blob []byte) ([]byte, error) {
	if len(blob) > MaxSize+Overhead {
		return nil, ErrCorrupt
	}
	aead, err := gcm(k.chunks, id[:])
	if err != nil {
		return nil, err
	}
	flag, chunk, err := openWith(aead, dst, blob, id[:])
	if err != nil {
		return nil, err
	}
	switch flag {
	case flagRaw:
	case flagZstd:
		if chunk, err = decoder().DecodeAll(chunk, nil); err != nil {
			return nil, ErrCorrupt
		}
	default:
		return nil, ErrCorrupt
	}
	if len(chunk) > MaxSize || k.ID(chunk) != id {
		return nil, ErrCorrupt
	}
	return chunk, nil
}

// gcm returns the cipher of one chunk or of the tables: info chooses the key below parent.
func gcm(parent, info []byte) (cipher.AEAD, error) {
	key, err := hkdf.Expand(sha256.New, parent, string(info), KeySize)
	if err != nil {
		return nil, fmt.Errorf("derive a key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCM(block)
}

// sealWith appends flag, nonce and ciphertext to dst. The nonce is random: one that is computed from the chunk would be
// used twice when another version of zstd makes other bytes of it.
func sealWith(aead cipher.AEAD, dst []byte, flag byte, body, name []byte) []byte {
	dst = append(dst, flag)
	var nonce [12]byte
	_, _ = rand.Read(nonce[:]) // never fails
	dst = append(dst, nonce[:]...)
	return aead.Seal(dst, nonce[:], body, append([]byte{flag}, name...))
}

// sealedAt is where the sealed bytes of a blob begin: after flag and nonce.
const sealedAt = 1 + 12

func openWith(aead cipher.AEAD, dst, blob, name []byte) (flag byte, body []byte, err error) {
	if len(blob) < Overhead {
		return 0, nil, ErrCorrupt
	}
	flag = blob[0]
	body, err = aead.Open(dst, blob[1:sealedAt], blob[sealedAt:], append([]byte{flag}, name...))
	if err != nil {
		return 0, nil, ErrCorrupt
	}
	return flag, body, nil
}

var encoder = sync.OnceValue(func() *zstd.Encoder {
	e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	if err != nil {
		panic(err) // the options are constant
	}
	return e
})

var decoder = sync.OnceValue(func() *zstd.Decoder {
	d, err := zstd.NewReader(nil, zstd.WithDecoderMaxMemory(MaxSize), zstd.WithDecoderConcurrency(0))
	if err != nil {
		panic(err) // the options are constant
	}
	return d
})
