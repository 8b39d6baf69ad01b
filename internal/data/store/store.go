// Package store keeps packs of sealed chunks: in any S3-compatible store, or in a folder that this server serves.
//
// A store does not have to be trusted: packs are sealed, and their hashes are known. Hosts and people never hold its
// credentials; they get requests that are signed for one object, one method and some minutes.
//
// Invariants:
//   - A signed PUT stores only an object of the length and the SHA-256 that it was signed for, and never replaces one.
//     [Store.Probe] checks at the start of a server that the store holds to that.
//   - After a PUT was answered 200, Head finds the object, also after a crash.
package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"strconv"
	"time"

	"github.com/musterhq/muster/internal/id"
)

// Store keeps objects.
type Store interface {
	// SignPut returns the request that stores an object of these bytes once, until the given time.
	SignPut(ctx context.Context, key string, sum [32]byte, bytes int64, until time.Time) (Request, error)
	// SignGet returns the request that reads an object, or ranges of it.
	SignGet(ctx context.Context, key string, until time.Time) (Request, error)
	// Head returns what the store says about an object. Error: ErrNotFound.
	Head(ctx context.Context, key string) (Object, error)
	// Read returns length bytes of an object from offset on. Error: ErrNotFound.
	Read(ctx context.Context, key string, offset, length int64) (io.ReadCloser, error)
	// Put stores an object, which must not exist, as a signed PUT does.
	Put(ctx context.Context, key string, body []byte) error
	// Delete removes objects. One that does not exist is no error.
	Delete(ctx context.Context, keys ...string) error
	// List returns the objects whose keys begin with prefix and come after the key after, in the order of their keys.
	List(ctx context.Context, prefix, after string) iter.Seq2[Listed, error]
	// Probe checks with an object of its own that the store does what this package relies on. Its error names what is
	// missing.
	Probe(ctx context.Context) error
}

// Request is a signed request.
type Request struct {
	Method string
	URL    string            // secret until it expires
	Header map[string]string // signed: a request must have them as they are
}

// Object is what a store says about an object.
type Object struct {
	Bytes int64
	Sum   [32]byte // SHA-256
}

// Listed is an object in a list.
type Listed struct {
	Key   string
	Bytes int64
	At    time.Time // when it was stored, by the store's clock
}

// A Lack is the error of a probe of a store that works, but does not hold to what a signed PUT demands: hosts must not
// send to it. A [Proxy] can stand between.
type Lack struct {
	What   string // "refuse a body that was not signed"
	Status int    // what it answered
}

func (l *Lack) Error() string {
	return fmt.Sprintf("the store does not %s: it answers %d", l.What, l.Status)
}

// ErrNotFound is the error of reading an object that the store does not have.
var ErrNotFound = errors.New("object not found")

// Packs is the prefix of the keys of all packs.
const Packs = "d/"

// Key returns where a pack of a data domain is.
func Key(domain id.DataDomain, n int64) string {
	return Packs + domain.String() + "/" + strconv.FormatInt(n, 10)
}
