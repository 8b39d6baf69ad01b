// Package id gives every kind of object its own identifier type.
//
// An id is a UUIDv7 (RFC 9562): ordered by creation time, made anywhere without coordination. Shown to people
// and programs it is a prefix and 26 lower-case Crockford base32 characters, "cl_01jd9w6n3q…"; in PostgreSQL it
// is a uuid. The zero id means "none": it is NULL in PostgreSQL and "" as text.
package id

import (
	"bytes"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/musterhq/muster/internal/text"
)

// Kind names a kind of object by the prefix of its ids.
type Kind interface{ Prefix() string }

// ID is the identifier of one object of kind K.
type ID[K Kind] struct{ u uuid.UUID }

// New returns a fresh UUIDv7 id. It panics only if the system's random source fails.
func New[T ~struct{ u uuid.UUID }]() T {
	return T(struct{ u uuid.UUID }{uuid.Must(uuid.NewV7())})
}

// From returns the least id of the millisecond t: objects created at t or later have ids that are not less. It must not
// name an object.
func From[T ~struct{ u uuid.UUID }](t time.Time) T {
	u := uuid.UUID{6: 0x70, 8: 0x80}
	var ms [8]byte
	binary.BigEndian.PutUint64(ms[:], uint64(t.UnixMilli()))
	copy(u[:6], ms[2:])
	return T(struct{ u uuid.UUID }{u})
}

// First returns an id that is less than those of all objects: where a scan in the order of ids begins. The zero id is
// NULL in SQL, and no id is greater than NULL.
func First[T ~struct{ u uuid.UUID }]() T { return From[T](time.UnixMilli(0)) }

// FromUUID gives a raw UUID its type.
func FromUUID[T ~struct{ u uuid.UUID }](u uuid.UUID) T {
	return T(struct{ u uuid.UUID }{u})
}

// Parse reads the text form of an id, as in Parse[Cluster]("cl_…"). The prefix must be the kind's own. The empty string
// is an error: callers that allow "none" check for it first.
func Parse[T interface{ IsZero() bool }, P interface {
	*T
	UnmarshalText([]byte) error
}](s string) (T, error) {
	var v T
	if err := P(&v).UnmarshalText([]byte(s)); err != nil {
		return v, err
	}
	if v.IsZero() {
		return v, errors.New("empty id")
	}
	return v, nil
}

func prefixOf[K Kind]() string {
	var k K
	return k.Prefix()
}

// UUID returns the raw UUID.
func (v ID[K]) UUID() uuid.UUID { return v.u }

// IsZero reports whether the id means "none". It makes `json:",omitzero"` work.
func (v ID[K]) IsZero() bool { return v.u == uuid.Nil }

// Compare orders ids by their bytes, which for UUIDv7 is by creation. It is the order in which rows are locked.
func (v ID[K]) Compare(w ID[K]) int { return bytes.Compare(v.u[:], w.u[:]) }

// String is the prefixed text form, or "" for the zero id.
func (v ID[K]) String() string {
	if v.IsZero() {
		return ""
	}
	return prefixOf[K]() + "_" + encode(v.u)
}

// Short is the prefix and the last eight characters: for container names, log lines and narrow columns.
// It is not unique by construction; never look an object up by it.
func (v ID[K]) Short() string {
	s := encode(v.u)
	return prefixOf[K]() + "_" + s[len(s)-8:]
}

// Example returns an id of the kind, always the same, for documents.
func (ID[K]) Example() string { return prefixOf[K]() + "_01jd9w6n3qf8vtx2m5k7c4hzrb" }

func (v ID[K]) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

func (v *ID[K]) UnmarshalText(b []byte) error {
	s := string(b)
	if s == "" {
		v.u = uuid.Nil
		return nil
	}
	p, rest, ok := strings.Cut(s, "_")
	if !ok || p != prefixOf[K]() {
		return fmt.Errorf("%q is not an id of this kind: want %s_ and 26 characters", text.Ellipsis(s, 40), prefixOf[K]())
	}
	u, err := decode(rest)
	if err != nil {
		return fmt.Errorf("%q is not an id: %w", text.Ellipsis(s, 40), err)
	}
	v.u = u
	return nil
}

// ScanUUID lets pgx read a uuid column, NULL becoming the zero id.
func (v *ID[K]) ScanUUID(p pgtype.UUID) error {
	v.u = uuid.Nil
	if p.Valid {
		v.u = p.Bytes
	}
	return nil
}

// UUIDValue lets pgx write a uuid column, the zero id becoming NULL.
func (v ID[K]) UUIDValue() (pgtype.UUID, error) {
	return pgtype.UUID{Bytes: v.u, Valid: !v.IsZero()}, nil
}

// UUIDs returns ids as a parameter of type uuid[], or as elements of one. A zero id becomes NULL.
func UUIDs[K Kind](ids ...ID[K]) []pgtype.UUID {
	out := make([]pgtype.UUID, len(ids))
	for i, v := range ids {
		out[i] = pgtype.UUID{Bytes: v.u, Valid: !v.IsZero()}
	}
	return out
}

// Value keeps database/sql able to write ids.
func (v ID[K]) Value() (driver.Value, error) {
	if v.IsZero() {
		return nil, nil
	}
	return v.u.String(), nil
}

// Alphabet is the characters of ids, by value.
const Alphabet = "0123456789abcdefghjkmnpqrstvwxyz"

// encode writes the 128 bits as 26 base32 characters, most significant first (two leading zero bits), as in the
// ULID specification, so that text order is byte order.
func encode(u uuid.UUID) string {
	var out [26]byte
	var acc uint32
	bits, k := 2, 0 // two zero bits in front make 130 = 26 × 5
	for _, b := range u {
		acc = acc<<8 | uint32(b)
		bits += 8
		for bits >= 5 {
			bits -= 5
			out[k] = Alphabet[acc>>bits&31]
			k++
		}
	}
	return string(out[:])
}

var errShape = errors.New("want 26 characters of 0-9 and a-z without i, l, o, u")

func decode(s string) (uuid.UUID, error) {
	var u uuid.UUID
	if len(s) != 26 || s[0] > '7' {
		return u, errShape
	}
	var acc uint32
	bits, k := -2, 0 // the two leading zero bits are dropped
	for i := range len(s) {
		d := strings.IndexByte(Alphabet, s[i])
		if d < 0 {
			return uuid.Nil, errShape
		}
		acc = acc<<5 | uint32(d)
		bits += 5
		if bits >= 8 {
			bits -= 8
			u[k] = byte(acc >> bits)
			k++
		}
	}
	return u, nil
}
