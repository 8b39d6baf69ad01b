package account

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"

	"github.com/musterhq/muster/internal/fault"
)

// Length of a password in characters.
const (
	MinPassword = 10
	MaxPassword = 200
)

// The cost of a hash is OWASP's recommendation for argon2id where memory is shared with a server (2024).
const (
	hashMemoryKiB = 19 << 10
	hashPasses    = 2
)

const (
	saltLen = 16
	keyLen  = 32
	// maxWaiting bounds the queue for the hash slots: past it, callers are sent away instead of piling up.
	maxWaiting = 64
)

type cost struct {
	memoryKiB, passes uint32
	lanes             uint8
}

// hasher makes and checks password hashes, a few at a time.
type hasher struct {
	slots   chan struct{}
	present cost // of new hashes
	waiting atomic.Int64
	decoy   string // matches no password; checked for unknown users so that they take as long
}

func newHasher(slots, memoryKiB int) *hasher {
	present := cost{memoryKiB: uint32(memoryKiB), passes: hashPasses, lanes: 1}
	salt, key := make([]byte, saltLen), make([]byte, keyLen)
	rand.Read(salt)
	rand.Read(key)
	return &hasher{slots: make(chan struct{}, slots), present: present, decoy: phc(present, salt, key)}
}

func (h *hasher) enter(ctx context.Context) (leave func(), err error) {
	if h.waiting.Add(1) > maxWaiting {
		h.waiting.Add(-1)
		f := fault.New(fault.Unavailable, "too many people are signing in at this moment: try again in a few seconds")
		f.RetryAfter = 5 * time.Second
		return nil, f
	}
	defer h.waiting.Add(-1)
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (h *hasher) hash(ctx context.Context, password string) (string, error) {
	leave, err := h.enter(ctx)
	if err != nil {
		return "", err
	}
	defer leave()
	salt := make([]byte, saltLen)
	rand.Read(salt)
	return phc(h.present, salt, derive(h.present, password, salt, keyLen)), nil
}

// check reports whether password made encoded. weak: it did, at a cost below the present one: hash it again.
func (h *hasher) check(ctx context.Context, encoded, password string) (ok, weak bool, err error) {
	c, salt, key, err := parsePHC(encoded)
	if err != nil {
		return false, false, err
	}
	leave, err := h.enter(ctx)
	if err != nil {
		return false, false, err
	}
	defer leave()
	ok = subtle.ConstantTimeCompare(key, derive(c, password, salt, uint32(len(key)))) == 1
	return ok, ok && (c.memoryKiB < h.present.memoryKiB || c.passes < h.present.passes), nil
}

func derive(c cost, password string, salt []byte, n uint32) []byte {
	return argon2.IDKey([]byte(password), salt, c.passes, c.memoryKiB, c.lanes, n)
}

// phc is the PHC string format: $argon2id$v=19$m=19456,t=2,p=1$salt$key.
func phc(c cost, salt, key []byte) string {
	b64 := base64.RawStdEncoding
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s", argon2.Version, c.memoryKiB, c.passes, c.lanes,
		b64.EncodeToString(salt), b64.EncodeToString(key))
}

var errPHC = errors.New("password hash is not an argon2id PHC string of acceptable cost")

func parsePHC(s string) (c cost, salt, key []byte, err error) {
	part := strings.Split(s, "$")
	if len(part) != 6 || part[0] != "" || part[1] != "argon2id" || part[2] != fmt.Sprintf("v=%d", argon2.Version) {
		return c, nil, nil, errPHC
	}
	if _, err := fmt.Sscanf(part[3], "m=%d,t=%d,p=%d", &c.memoryKiB, &c.passes, &c.lanes); err != nil {
		return c, nil, nil, errPHC
	}
	salt, err1 := base64.RawStdEncoding.Strict().DecodeString(part[4])
	key, err2 := base64.RawStdEncoding.Strict().DecodeString(part[5])
	if err1 != nil || err2 != nil || len(salt) < 8 || len(key) < 16 || len(key) > 64 ||
		c.passes < 1 || c.passes > 10 || c.lanes < 1 || c.memoryKiB < 8 || c.memoryKiB > 256<<10 {
		return c, nil, nil, errPHC
	}
	return c, salt, key, nil
}

// checkPassword holds a new password to the rules.
func checkPassword(f *fault.Fields, location, password, email string) {
	n := utf8.RuneCountInString(password)
	switch {
	case !utf8.ValidString(password):
		f.Add(location, "has to be valid UTF-8 text")
	case n < MinPassword:
		f.Add(location, "has to have at least %d characters", MinPassword)
	case n > MaxPassword:
		f.Add(location, "has to have at most %d characters", MaxPassword)
	case strings.EqualFold(strings.TrimSpace(password), email):
		f.Add(location, "must not be your e-mail address")
	case strings.Count(password, password[:1]) == len(password):
		f.Add(location, "must not be one character repeated")
	}
}
