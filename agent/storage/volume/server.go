package volume

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/packio"
)

// Server passes one request about a volume to the control plane. An error means that it was not answered.
type Server func(ctx context.Context, q agentapi.VolumeRequest) (agentapi.VolumeReply, error)

// remote is the control plane and the store, as one session uses them.
type remote struct {
	server  Server
	http    *http.Client
	turn    func(ctx context.Context) (func(), error) // nil: none is needed
	ref     agentapi.LeaseRef
	volume  string
	session string
	least   time.Duration // first wait after a failure, doubled to maxWait

	mu      sync.Mutex
	trouble [2]string // why requests are sent again; "" = they are not
}

// Who does not answer.
const (
	fromServer = 0
	fromStore  = 1
)

// note notes why a request is sent again; nil: it was answered.
func (r *remote) note(who int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trouble[who] = ""
	if err != nil {
		r.trouble[who] = err.Error()
	}
}

// why returns why requests are sent again, for people; "" = they are not.
func (r *remote) why() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.trouble[fromStore], r.trouble[fromServer])
}

const maxWait = time.Minute

// retry calls f until it succeeds, fails for good, or ctx ends. f returns how long to wait at least before the next
// try.
func (r *remote) retry(ctx context.Context, who int, f func() (time.Duration, error)) error {
	for wait := r.least; ; wait = min(2*wait, maxWait) {
		least, err := f()
		if err == nil || final(err) {
			r.note(who, nil)
			return err
		}
		r.note(who, err)
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(max(wait, least)):
		}
	}
}

// final reports whether repeating a request would not help.
func final(err error) bool {
	var refused *agentapi.VolumeError
	if errors.As(err, &refused) {
		// A snapshot that comes too soon is cut already, and its job may have gone on: it is committed later.
		return refused.Code != agentapi.VolumeAway && refused.Code != agentapi.VolumeTooSoon
	}
	var lost *lostError
	return errors.As(err, &lost)
}

// call sends a request until it is answered. A refusal is an *agentapi.VolumeError.
func (r *remote) call(ctx context.Context, q agentapi.VolumeRequest) (reply agentapi.VolumeReply, err error) {
	q.LeaseRef, q.Volume, q.Session = r.ref, r.volume, r.session
	err = r.retry(ctx, fromServer, func() (time.Duration, error) {
		var err error
		if reply, err = r.server(ctx, q); err != nil {
			return 0, err
		}
		if reply.AckError != "" {
			return time.Duration(reply.RetryMS) * time.Millisecond, fmt.Errorf("%s of a volume: %s", q.Op, reply.AckError)
		}
		if reply.Error != nil {
			return 0, reply.Error
		}
		return 0, nil
	})
	return reply, err
}

// A lostError is the error of a pack that cannot be read, although it was requested readTries times.
type lostError struct {
	pack  int64
	cause error
}

func (e *lostError) Error() string { return fmt.Sprintf("pack %d cannot be read: %s", e.pack, e.cause) }
func (e *lostError) Unwrap() error { return e.cause }

// stall is for how long the store may neither take nor send a byte of a pack.
const stall = 30 * time.Second

// signed is a signed request of the control plane.
func signed(u agentapi.PackURL) packio.Request {
	return packio.Request{Method: u.Method, URL: u.URL, Header: u.Header, Stall: stall}
}

// store stores a whole pack under its number. It returns once the store has it.
func (r *remote) store(ctx context.Context, snapshot string, n int64, pack []byte) error {
	sum := sha256.Sum256(pack)
	return r.retry(ctx, fromStore, func() (time.Duration, error) {
		reply, err := r.call(ctx, agentapi.VolumeRequest{Op: agentapi.VolumeGrant, Grant: &agentapi.GrantPacks{
			Snapshot: snapshot, Packs: []agentapi.PackGrant{{N: n, SHA256: sum[:], Bytes: int64(len(pack))}},
		}})
		if err != nil {
			return 0, err
		}
		if reply.Grant == nil || len(reply.Grant.Packs) != 1 || reply.Grant.Packs[0].N != n {
			return 0, errors.New("the server answers a grant with something else")
		}
		u := reply.Grant.Packs[0]
		if u.Stored {
			return 0, nil
		}
		done, err := r.waitTurn(ctx)
		if err != nil {
			return 0, err
		}
		defer done()
		q := signed(u)
		q.Body = pack
		_, err = packio.Send(ctx, r.http, q)
		return 0, err
	})
}

// waitTurn waits until one more pack may be on its way. It is not called during a turn: all turns could wait for more.
func (r *remote) waitTurn(ctx context.Context) (done func(), err error) {
	if r.turn == nil {
		return func() {}, nil
	}
	return r.turn(ctx)
}

// read returns bytes of a pack: length of them from an offset, or all of it if length is 0.
func (r *remote) read(ctx context.Context, u agentapi.PackURL, from, length int64) ([]byte, error) {
	want := length
	if length == 0 {
		want = u.Bytes
	}
	a, err := r.request(ctx, u, from, length, want)
	if err != nil {
		return nil, err
	}
	defer a.Close()
	b := make([]byte, want)
	return b, a.Full(b)
}

// request requests bytes of a pack, of which want are expected.
func (r *remote) request(ctx context.Context, u agentapi.PackURL, from, length, want int64) (*packio.Answer, error) {
	if want <= 0 || want > chunk.PackSize {
		return nil, fmt.Errorf("%d bytes are no length of a pack", want)
	}
	q := signed(u)
	q.From, q.Length = from, length
	return packio.Send(ctx, r.http, q)
}
