// Package lazytest stores snapshots of trees and answers for them as the control plane does, for tests and benchmarks.
package lazytest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// Key is the key of the volume's domain.
var Key = []byte("0123456789abcdef0123456789abcdef")

// An Entry is a part of a tree.
type Entry struct {
	manifest.Entry
	Content []byte // of a file, without its holes
	Kids    []*Entry
	// Mangle changes the encoding of a small folder, as one who has the key could.
	Mangle func(b []byte)
}

// File returns a file.
func File(name string, content []byte) *Entry {
	return &Entry{Entry: manifest.Entry{Name: name, Kind: manifest.File, Mode: 0o644, Size: int64(len(content))},
		Content: content}
}

// Dir returns a folder.
func Dir(name string, kids ...*Entry) *Entry {
	return &Entry{Entry: manifest.Entry{Name: name, Kind: manifest.Dir, Mode: 0o755}, Kids: kids}
}

// writer fills packs, those with data apart from those with the manifest.
type writer struct {
	keys  *chunk.Keys
	put   func(n int64, pack []byte) error
	next  int64
	packs manifest.PackSet
	known *manifest.Index
	open  [2]struct {
		n int64
		p chunk.Packer
	}
}

func (w *writer) chunk(kind int, b []byte) (manifest.Ref, error) {
	id := w.keys.ID(b)
	if r, ok := w.known.Find(id); ok {
		return r, nil
	}
	blob, err := w.keys.Seal(nil, id, b)
	if err != nil {
		return manifest.Ref{}, err
	}
	o := &w.open[kind]
	if o.p.Len() > 0 && !o.p.Fits(len(blob)) {
		if err := w.flush(kind); err != nil {
			return manifest.Ref{}, err
		}
	}
	if o.p.Len() == 0 {
		w.next++
		o.n = w.next
	}
	e, err := o.p.Add(id, blob)
	if err != nil {
		return manifest.Ref{}, err
	}
	r := manifest.Ref{ID: id, Pack: o.n, Offset: e.Offset, Length: e.Length, Size: uint32(len(b))}
	w.known.Add(r)
	return r, nil
}

func (w *writer) flush(kind int) error {
	o := &w.open[kind]
	if o.p.Len() == 0 {
		return nil
	}
	pack, err := o.p.Finish(w.keys)
	if err != nil {
		return err
	}
	w.packs.Add(o.n)
	return w.put(o.n, pack)
}

// Store stores a tree as a snapshot; put stores a pack.
func Store(put func(n int64, pack []byte) error, root *Entry) (s agentapi.Snapshot, err error) {
	keys, err := chunk.NewKeys(Key)
	if err != nil {
		return s, err
	}
	w := &writer{keys: keys, put: put, known: manifest.NewIndex()}
	mw := manifest.Writer{Put: func(b []byte) (manifest.Ref, error) { return w.chunk(1, b) }}
	if err := w.entry(mw, root); err != nil {
		return s, err
	}
	ref, err := mw.Root(manifest.Root{Dir: root.Entry})
	if err = errors.Join(err, w.flush(0), w.flush(1)); err != nil {
		return s, err
	}
	return agentapi.Snapshot{ID: "snp_1", Seq: 1, Packs: w.packs.Encode(), Root: agentapi.PackPlace{
		ID: ref.ID.String(), Pack: ref.Pack, Offset: ref.Offset, Length: ref.Length, Size: ref.Size}}, nil
}

func (w *writer) entry(mw manifest.Writer, e *Entry) (err error) {
	switch e.Kind {
	case manifest.File:
		var refs []manifest.Ref
		for s := chunk.NewSplitter(bytes.NewReader(e.Content)); ; {
			b, err := s.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
			r, err := w.chunk(0, b)
			if err != nil {
				return err
			}
			refs = append(refs, r)
		}
		e.Body, err = mw.Content(refs)
	case manifest.Dir:
		entries := make([]manifest.Entry, len(e.Kids))
		for i, k := range e.Kids {
			if err := w.entry(mw, k); err != nil {
				return err
			}
			entries[i] = k.Entry
		}
		if e.Mangle == nil {
			return mw.Dir(&e.Entry, entries)
		}
		b, err := manifest.EncodeDir(entries)
		if err != nil {
			return err
		}
		e.Mangle(b)
		r, err := w.chunk(1, b)
		e.Size, e.Body = int64(len(b)), manifest.Content{Refs: []manifest.Ref{r}}
		return err
	}
	return err
}

// Platform answers for one snapshot as the control plane does.
type Platform struct {
	Snapshot *agentapi.Snapshot // nil: the volume is empty
	// Sign returns a signed request to read a pack, which has so many bytes.
	Sign func(ctx context.Context, n int64, until time.Time) (agentapi.PackURL, error)

	Mu       sync.Mutex
	Life     time.Duration // of signed requests
	Away     bool          // it does not answer
	Refuse   *agentapi.VolumeError
	Opens    int
	Reads    int // packs of which requests were signed
	Closed   bool
	Problems []string // of reports
}

// Serve answers a request.
func (p *Platform) Serve(ctx context.Context, q agentapi.VolumeRequest) (out agentapi.VolumeReply, err error) {
	p.Mu.Lock()
	defer p.Mu.Unlock()
	switch {
	case p.Away:
		return out, errors.New("no answer")
	case p.Refuse != nil:
		out.Error = p.Refuse
		return out, nil
	}
	switch q.Op {
	case agentapi.VolumeOpen:
		p.Opens++
		out.Open = &agentapi.OpenedVolume{Session: "ses", Base: p.Snapshot}
		if p.Snapshot != nil {
			out.Open.HeadSeq = p.Snapshot.Seq
		}
	case agentapi.VolumeRead:
		out.Read = &agentapi.ReadablePacks{}
		until := time.Now().Add(p.Life)
		for _, n := range q.Read.Packs {
			u, err := p.Sign(ctx, n, until)
			if err != nil {
				return out, err
			}
			p.Reads++
			u.N, u.UntilMS = n, until.UnixMilli()
			out.Read.Packs = append(out.Read.Packs, u)
		}
	case agentapi.VolumeReports:
		p.Problems = append(p.Problems, q.Report.Problem)
	case agentapi.VolumeClose:
		p.Closed = true
	}
	return out, nil
}
