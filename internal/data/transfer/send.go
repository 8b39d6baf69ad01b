package transfer

import (
	"context"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// reserveAtOnce is how many numbers of packs are reserved with one request.
const reserveAtOnce = 8

// Kinds of packs: chunks of files and of the manifest go into packs of their own.
const (
	dataPacks     = 0
	manifestPacks = 1
)

// A sender seals chunks, fills packs and sends them. put and finish are called by one goroutine.
type sender struct {
	s      *Session
	ctx    context.Context
	group  *errgroup.Group
	known  *manifest.Index
	stored func(refs []manifest.Ref) error // after a pack is stored; calls do not overlap; nil: none
	dry    bool                            // nothing is sent

	numbers []int64
	open    [2]openPack
	used    *manifest.PackSet // packs of what put returned

	mu    sync.Mutex
	moved int64
}

type openPack struct {
	packer chunk.Packer
	n      int64
	refs   []manifest.Ref
}

func newSender(ctx context.Context, s *Session, known *manifest.Index) *sender {
	x := &sender{s: s, known: known, used: manifest.NewPackSet()}
	x.group, x.ctx = errgroup.WithContext(ctx)
	x.group.SetLimit(inFlight)
	return x
}

// put returns where a chunk is, and adds it to a pack if it is not stored yet.
func (x *sender) put(kind int, b []byte) (manifest.Ref, error) {
	id := x.s.Keys.ID(b)
	if r, ok := x.known.Find(id); ok {
		x.used.Add(r.Pack)
		return r, nil
	}
	if x.ctx.Err() != nil {
		return manifest.Ref{}, context.Cause(x.ctx)
	}
	blob, err := x.s.Keys.Seal(nil, id, b)
	if err != nil {
		return manifest.Ref{}, err
	}
	if x.dry {
		x.mu.Lock()
		x.moved += int64(len(blob))
		x.mu.Unlock()
		r := manifest.Ref{ID: id, Pack: 1, Length: uint32(len(blob)), Size: uint32(len(b))}
		x.known.Add(r)
		return r, nil
	}
	p := &x.open[kind]
	if p.packer.Len() > 0 && !p.packer.Fits(len(blob)) {
		if err := x.send(p); err != nil {
			return manifest.Ref{}, err
		}
	}
	if p.packer.Len() == 0 {
		if p.n, err = x.number(); err != nil {
			return manifest.Ref{}, err
		}
	}
	e, err := p.packer.Add(id, blob)
	if err != nil {
		return manifest.Ref{}, err
	}
	r := manifest.Ref{ID: id, Pack: p.n, Offset: e.Offset, Length: e.Length, Size: uint32(len(b))}
	p.refs = append(p.refs, r)
	x.known.Add(r)
	x.used.Add(r.Pack)
	return r, nil
}

// number returns a number for the next pack.
func (x *sender) number() (int64, error) {
	if len(x.numbers) == 0 {
		err := x.s.retry(x.ctx, func() error {
			first, n, err := x.s.Remote.Reserve(x.ctx, reserveAtOnce)
			for i := range int64(n) {
				x.numbers = append(x.numbers, first+i)
			}
			return err
		})
		if err != nil {
			return 0, err
		}
	}
	n := x.numbers[0]
	x.numbers = x.numbers[1:]
	return n, nil
}

// send hands a full pack over to be stored. It waits while as many as may be are on their way.
func (x *sender) send(p *openPack) error {
	pack, err := p.packer.Finish(x.s.Keys)
	if err != nil {
		return err
	}
	n, refs := p.n, p.refs
	p.refs = nil
	x.group.Go(func() error {
		if err := x.s.put(x.ctx, n, pack); err != nil {
			return err
		}
		x.mu.Lock()
		defer x.mu.Unlock()
		x.moved += int64(len(pack))
		if x.stored == nil {
			return nil
		}
		return x.stored(refs)
	})
	return nil
}

func (x *sender) bytes() int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.moved
}

// finish sends what is left, waits until all is stored, and returns the first error, which may be the caller's.
func (x *sender) finish(err error) error {
	for i := range x.open {
		if err == nil && x.open[i].packer.Len() > 0 {
			err = x.send(&x.open[i])
		}
	}
	if sent := x.group.Wait(); sent != nil {
		return sent // the cause: put fails because of it
	}
	return err
}
