package volume

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
	"github.com/musterhq/muster/internal/data/manifest"
)

// inFlight is how many packs are on their way to the store at once: with the two that are being filled, they are what
// an upload keeps in memory.
const inFlight = 3

// reserveAtOnce is how many numbers of packs are reserved with one request.
const reserveAtOnce = 8

// A sender seals chunks, fills packs and sends them. Chunks of files and of the manifest go into packs of their own.
// put and finish are called by one goroutine.
type sender struct {
	ctx      context.Context
	remote   *remote
	keys     *chunk.Keys
	snapshot string
	known    *manifest.Index
	stored   func(refs []manifest.Ref) error // after a pack is stored; calls do not overlap

	group   *errgroup.Group
	numbers []int64
	open    [2]openPack // 0: data, 1: manifest
	mu      sync.Mutex
	sent    int64 // bytes of packs that are stored
	sealed  int64 // bytes of packs that were made
	begun   time.Time
}

type openPack struct {
	packer chunk.Packer
	n      int64
	refs   []manifest.Ref
}

// start prepares a sender whose fields above group are set.
func (s *sender) start(ctx context.Context) *sender {
	s.group, s.ctx = errgroup.WithContext(ctx)
	s.group.SetLimit(inFlight)
	s.begun = time.Now()
	return s
}

const (
	dataPacks     = 0
	manifestPacks = 1
)

// put returns where a chunk is, and adds it to a pack if it is not stored yet.
func (s *sender) put(kind int, b []byte) (manifest.Ref, error) {
	id := s.keys.ID(b)
	if r, ok := s.known.Find(id); ok {
		return r, nil
	}
	if err := s.ctx.Err(); err != nil {
		return manifest.Ref{}, context.Cause(s.ctx)
	}
	blob, err := s.keys.Seal(nil, id, b)
	if err != nil {
		return manifest.Ref{}, err
	}
	p := &s.open[kind]
	if p.packer.Len() > 0 && !p.packer.Fits(len(blob)) {
		if err := s.send(p); err != nil {
			return manifest.Ref{}, err
		}
	}
	if p.packer.Len() == 0 {
		if p.n, err = s.number(); err != nil {
			return manifest.Ref{}, err
		}
	}
	e, err := p.packer.Add(id, blob)
	if err != nil {
		return manifest.Ref{}, err
	}
	r := manifest.Ref{ID: id, Pack: p.n, Offset: e.Offset, Length: e.Length, Size: uint32(len(b))}
	p.refs = append(p.refs, r)
	s.known.Add(r)
	return r, nil
}

// number returns a number for the next pack.
func (s *sender) number() (int64, error) {
	if len(s.numbers) == 0 {
		reply, err := s.remote.call(s.ctx, agentapi.VolumeRequest{Op: agentapi.VolumeReserve,
			Reserve: &agentapi.ReservePacks{Count: reserveAtOnce}})
		if err != nil {
			return 0, err
		}
		if reply.Reserve == nil || reply.Reserve.First < 1 || reply.Reserve.Count < 1 ||
			reply.Reserve.Count > agentapi.MaxReserve {
			return 0, fmt.Errorf("the server answers a reserve with something else")
		}
		for i := range reply.Reserve.Count {
			s.numbers = append(s.numbers, reply.Reserve.First+int64(i))
		}
	}
	n := s.numbers[0]
	s.numbers = s.numbers[1:]
	return n, nil
}

// send hands a full pack over to be stored. It waits while as many as may be are on their way.
func (s *sender) send(p *openPack) error {
	pack, err := p.packer.Finish(s.keys)
	if err != nil {
		return err
	}
	n, refs := p.n, p.refs
	p.refs = nil
	s.mu.Lock()
	s.sealed += int64(len(pack))
	s.mu.Unlock()
	s.group.Go(func() error {
		if err := s.remote.store(s.ctx, s.snapshot, n, pack); err != nil {
			return err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.sent += int64(len(pack))
		return s.stored(refs)
	})
	return nil
}

// finish sends what is left and waits until all is stored.
func (s *sender) finish() error {
	for i := range s.open {
		if s.open[i].packer.Len() > 0 {
			if err := s.send(&s.open[i]); err != nil {
				return err
			}
		}
	}
	return s.group.Wait()
}

// abandon waits for the end of what is on its way after an error.
func (s *sender) abandon(err error) error {
	if werr := s.group.Wait(); werr != nil {
		return werr // the cause: put fails because of it
	}
	return err
}
