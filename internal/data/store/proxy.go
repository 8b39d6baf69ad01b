package store

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"time"
)

// A Proxy stands between hosts and an S3 store that does not hold to what a signed PUT demands (see [Lack]): hosts send
// packs to this server, whose Handler checks them and stores them with the store's credentials. Reading goes to the
// store itself.
//
// A store without If-None-Match may be sent the same pack twice at the same time. Both have the same bytes: a key is
// only ever signed for one content.
type Proxy struct {
	*S3
	signer
}

// NewProxy returns a proxy of s, whose Handler is reached at origin, scheme://host[:port]; secret has at least 32 bytes
// and is the same on all servers.
func NewProxy(s *S3, origin string, secret []byte) (*Proxy, error) {
	sign, err := newSigner(origin, secret)
	if err != nil {
		return nil, err
	}
	return &Proxy{S3: s, signer: sign}, nil
}

// SignPut implements Store.
func (p *Proxy) SignPut(_ context.Context, key string, sum [32]byte, bytes int64, until time.Time) (Request, error) {
	if err := checkKey(key); err != nil {
		return Request{}, err
	}
	return p.sign(claims{http.MethodPut, key, until.Unix(), bytes, hex.EncodeToString(sum[:])}), nil
}

// Put implements Store.
func (p *Proxy) Put(ctx context.Context, key string, body []byte) error {
	return p.put(ctx, key, bytes.NewReader(body), int64(len(body)))
}

func (p *Proxy) put(ctx context.Context, key string, body io.ReadSeeker, size int64) error {
	switch _, err := p.Head(ctx, key); {
	case err == nil:
		return fs.ErrExist
	case !errors.Is(err, ErrNotFound):
		return err
	}
	return p.plainPut(ctx, key, body, size)
}

// Handler answers signed PUTs below SignedPath, as an S3 store would that holds to them.
func (p *Proxy) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c, ok := p.verify(r, strings.TrimPrefix(r.URL.Path, SignedPath))
		switch {
		case !ok || c.method != http.MethodPut:
			http.Error(w, notSigned, http.StatusForbidden)
			return
		case r.ContentLength != c.bytes:
			http.Error(w, otherLength, http.StatusBadRequest)
			return
		}
		answerPut(w, p.receive(r, c))
	})
}

// receive stores the body of a signed PUT. It lies in a file until it is whole: a host that sends slowly takes up no
// memory.
func (p *Proxy) receive(r *http.Request, c claims) error {
	spool, err := os.CreateTemp("", "muster-pack-*")
	if err != nil {
		return err
	}
	defer spool.Close()
	if err := os.Remove(spool.Name()); err != nil {
		return err
	}
	h := sha256.New()
	n, err := io.Copy(io.MultiWriter(spool, h), io.LimitReader(r.Body, c.bytes))
	if err != nil {
		return err
	}
	if n != c.bytes || hex.EncodeToString(h.Sum(nil)) != c.sum {
		return errOther
	}
	if _, err := spool.Seek(0, io.SeekStart); err != nil {
		return err
	}
	return p.put(r.Context(), c.key, spool, c.bytes)
}

// Probe implements Store. What the Handler refuses, tests check.
func (p *Proxy) Probe(ctx context.Context) error {
	x := newProbe()
	defer func() { _ = p.Delete(ctx, x.key) }() // it stays: a few bytes
	if err := p.Put(ctx, x.key, x.body); err != nil {
		return fmt.Errorf("store an object: %w", err)
	}
	return probeRest(ctx, p, x)
}
