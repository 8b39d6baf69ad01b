package peers

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"syscall"
	"time"
)

// Deadlines of a request. An owner that will send a pack says so at once, and may still have to get it from the store.
const (
	acceptIn = 2 * time.Second  // to its first word
	beginIn  = 25 * time.Second // from there to the first byte
	wholeIn  = 2 * time.Minute  // from there to the last one
	// paceBytes must come in each paceEvery: an owner that is slower is no help.
	paceBytes = 1 << 20
	paceEvery = 4 * time.Second
)

var (
	// errNotYet: the peer's port refuses connections, or the peer has not begun to restore.
	errNotYet = errors.New("the peer does not restore yet")
	errSlow   = errors.New("the peer is too slow")
	errLied   = errors.New("the peer sends a wrong pack")
)

// header is the field of a request that has its minute and its code.
const header = "Muster-Peer"

// get requests one pack of a peer. What it returns has the expected length and is not verified.
func (s *Server) get(ctx context.Context, addr, volume string, n, size int64, keys Signer) ([]byte, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/c/%s/%d", addr, volume, n), nil)
	if err != nil {
		return nil, err
	}
	minute := minuteOf(time.Now())
	q.Header.Set(header, strconv.FormatInt(minute, 10)+" "+hex.EncodeToString(keys.Sign(signed(volume, n, addr, minute))))
	accept := time.AfterFunc(s.times.accept, func() { cancel(errSlow) })
	res, err := s.client.Do(q)
	if !accept.Stop() && err == nil {
		res.Body.Close()
		return nil, errSlow
	}
	if err != nil {
		return nil, failure(ctx, err)
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
	case http.StatusServiceUnavailable:
		return nil, errNotYet
	default:
		return nil, fmt.Errorf("the peer answers with status %d", res.StatusCode)
	}
	b, err := s.receive(res.Body, size, cancel)
	if err != nil {
		return nil, failure(ctx, err)
	}
	return b, nil
}

// failure returns why a request failed: what ended it, if it was ended.
func failure(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return errNotYet
	}
	return err
}

// receive reads a pack of a known length, as long as it comes fast enough.
func (s *Server) receive(body io.Reader, size int64, cancel context.CancelCauseFunc) ([]byte, error) {
	slow := time.AfterFunc(s.times.begin, func() { cancel(errSlow) })
	defer slow.Stop()
	whole := time.AfterFunc(s.times.begin+s.times.whole, func() { cancel(errSlow) })
	defer whole.Stop()
	b := make([]byte, size+1) // one byte more, to see the end
	got, paced := 0, 0
	for got < len(b) {
		k, err := body.Read(b[got:])
		if k > 0 && got == 0 {
			slow.Reset(s.times.pace)
		}
		got += k
		if got-paced >= paceBytes {
			paced = got
			slow.Reset(s.times.pace)
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
	}
	if int64(got) != size {
		return nil, fmt.Errorf("%w: of another length", errLied)
	}
	return b[:size:size], nil
}

// times are the deadlines, which tests shorten.
type times struct{ accept, begin, whole, pace time.Duration }

func defaultTimes() times { return times{acceptIn, beginIn, wholeIn, paceEvery} }
