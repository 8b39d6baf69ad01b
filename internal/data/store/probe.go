package store

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// A probe is an object that a probe stores, reads and removes.
type probe struct {
	key  string
	body []byte
}

func newProbe() probe {
	body := make([]byte, 64)
	_, _ = rand.Read(body) // never fails
	return probe{key: "probe/x/" + hex.EncodeToString(body[:8]), body: body}
}

// Probe implements Store. A store that works, and does not hold to what is signed, fails with a *Lack.
func (s *S3) Probe(ctx context.Context) error {
	p := newProbe()
	defer func() { _ = s.Delete(ctx, p.key) }() // it stays: a few bytes
	if err := s.probeSigned(ctx, p); err != nil {
		return err
	}
	return probeRest(ctx, s, p)
}

// probeSigned stores the probe by a signed PUT, after others that must be refused.
func (s *S3) probeSigned(ctx context.Context, p probe) error {
	r, err := s.SignPut(ctx, p.key, sha256.Sum256(p.body), int64(len(p.body)), time.Now().Add(time.Minute))
	if err != nil {
		return err
	}
	wrong := bytes.Clone(p.body)
	wrong[0]++
	bare := r
	bare.Header = map[string]string{}
	refused := func(status int) bool { return status >= 400 && status < 500 }
	for _, step := range []struct {
		what    string
		request Request
		body    []byte
		ok      func(status int) bool
	}{
		{"refuse a body that was not signed", r, wrong, refused},
		{"refuse a PUT without the signed headers", bare, p.body, refused},
		{"store an object by a signed PUT", r, p.body, func(s int) bool { return s == http.StatusOK }},
		{"refuse to replace an object (If-None-Match)", r, p.body,
			func(s int) bool { return s == http.StatusPreconditionFailed }},
	} {
		status, err := s.send(ctx, step.request, step.body)
		if err != nil {
			return fmt.Errorf("probe the store: %w", err)
		}
		if !step.ok(status) {
			return &Lack{What: step.what, Status: status}
		}
	}
	return nil
}

// probeRest checks everything else that volumes rely on, with a probe that is stored. It removes the probe.
func probeRest(ctx context.Context, s Store, p probe) error {
	o, err := s.Head(ctx, p.key)
	if err != nil {
		return fmt.Errorf("look for the object of the probe: %w", err)
	}
	if o.Bytes != int64(len(p.body)) {
		return fmt.Errorf("the store shows %d bytes of %d that were stored", o.Bytes, len(p.body))
	}
	if o.Sum != [32]byte{} && o.Sum != sha256.Sum256(p.body) {
		return errors.New("the store shows another checksum than that of the object")
	}
	if err := probeRange(ctx, s, p); err != nil {
		return err
	}
	listed := false
	for o, err := range s.List(ctx, p.key, "") {
		if err != nil {
			return err
		}
		listed = listed || o.Key == p.key
	}
	if !listed {
		return errors.New("the store does not list an object that it has")
	}
	if err := s.Delete(ctx, p.key, p.key+"x"); err != nil {
		return fmt.Errorf("delete the object of the probe: %w", err)
	}
	if _, err := s.Head(ctx, p.key); !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("the store has an object that was deleted: %w", err)
	}
	return nil
}

func probeRange(ctx context.Context, s Store, p probe) error {
	part, err := s.Read(ctx, p.key, 8, 8)
	if err != nil {
		return fmt.Errorf("read a range from the store: %w", err)
	}
	defer part.Close()
	b, err := io.ReadAll(io.LimitReader(part, 1<<10))
	if err != nil {
		return fmt.Errorf("read a range from the store: %w", err)
	}
	if !bytes.Equal(b, p.body[8:16]) {
		return errors.New("the store does not answer ranges")
	}
	return nil
}
