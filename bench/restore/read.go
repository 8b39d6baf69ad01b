package restore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/agent/lazy"
	"github.com/musterhq/muster/agent/scratch"
	"github.com/musterhq/muster/agent/volume"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/store"
)

const (
	readRounds     = 5
	restoreStreams = 3 // packs that a restore reads at once
	lazyStreams    = 8 // requests that a lazy mount has ahead of a reader
	lazyRange      = 4 << 20
)

// ReadRows restores a volume, and reads one on demand from its beginning to its end, in turns with a bare client that
// reads the same packs with as many streams and throws the bytes away, or writes them to the same disk. The store is
// versitygw on this machine, which shares the processors with both.
func ReadRows(ctx context.Context, bin string) (rows []table.Row, err error) {
	dir, err := os.MkdirTemp("", "muster-bench-read-")
	if err != nil {
		return nil, err
	}
	disk, unmount, err := mount(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, unmount(), os.RemoveAll(dir)) }()
	p, end, err := newS3Platform(ctx, filepath.Join(dir, "store"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	sum, err := p.fill(ctx, filepath.Join(disk, "writer"))
	if err != nil {
		return nil, err
	}
	files := filepath.Join(disk, "files")
	timed := func(f func() error) func(int) (time.Duration, error) {
		return func(int) (time.Duration, error) {
			begun := time.Now()
			err := f()
			return time.Since(begun), errors.Join(err, os.RemoveAll(files))
		}
	}
	measures := []func(round int) (time.Duration, error){
		timed(func() error { return p.restoreOnce(ctx, files) }),
		timed(func() error { return p.bare(ctx, restoreStreams, 16<<20, files) }),
		timed(func() error { return p.bare(ctx, restoreStreams, 16<<20, "") }),
		func(round int) (time.Duration, error) {
			return p.lazily(ctx, filepath.Join(disk, "cache"), dir, bin, sum, round == 0)
		},
		timed(func() error { return p.bare(ctx, lazyStreams, lazyRange, "") }),
		timed(func() error { return p.bare(ctx, 1, lazyRange, "") }),
	}
	rates := make([][]float64, len(measures))
	for round := range readRounds + 1 { // the first one allocates the disk's blocks and is not counted
		for i, f := range measures {
			if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0); err != nil {
				return nil, err
			}
			took, err := f(round)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				rates[i] = append(rates[i], size/1e6/took.Seconds())
			}
		}
	}
	row := func(name string, ours, bare int, beside, want string, least float64) table.Row {
		a, b := table.Median(slices.Clone(rates[ours])), table.Median(slices.Clone(rates[bare]))
		return table.Row{Goal: 14, Name: name, Unit: "MB/s", Ours: a, Baseline: b, BaselineName: beside, Ratio: a / b,
			Want: want, Met: want != "" && a/b >= least,
			Details: map[string]any{"ours": rates[ours], "baseline": rates[bare], "bytes": size}}
	}
	return []table.Row{
		row("restore of a volume", 0, 1, "a bare client, 3 streams, into files", "≥ 0.75", 0.75),
		row("the same", 0, 2, "a bare client, 3 streams", "", 0),
		row("a lazy volume read in order", 3, 4, "a bare client, 8 streams", "≥ 0.6", 0.6),
		row("the same", 3, 5, "a bare client, 1 stream", "", 0),
	}, nil
}

// restoreOnce restores the volume into a folder.
func (p *platform) restoreOnce(ctx context.Context, root string) error {
	if err := os.MkdirAll(scratch.Data(root), 0o755); err != nil {
		return err
	}
	v, err := volume.Open(ctx, p.config(root, 0))
	if err != nil {
		return err
	}
	return errors.Join(v.Restore(ctx, nil), v.Close())
}

// bare reads all packs by ranges, several at once, into files of a folder unless that is "".
func (p *platform) bare(ctx context.Context, streams int, length int64, into string) error {
	if into != "" {
		if err := os.Mkdir(into, 0o700); err != nil {
			return err
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(streams)
	for n, pack := range p.packs {
		r, err := p.store.SignGet(ctx, store.Key(p.domain, n), time.Now().Add(time.Hour))
		if err != nil {
			return err
		}
		for from := int64(0); from < pack.Bytes; from += length {
			g.Go(func() error {
				q, err := http.NewRequestWithContext(ctx, r.Method, r.URL, nil)
				if err != nil {
					return err
				}
				for k, v := range r.Header {
					q.Header.Set(k, v)
				}
				q.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", from, min(from+length, pack.Bytes)-1))
				res, err := client.Do(q)
				if err != nil {
					return err
				}
				defer res.Body.Close()
				to := io.Discard
				if into != "" {
					f, err := os.Create(filepath.Join(into, fmt.Sprint(n, "-", from)))
					if err != nil {
						return err
					}
					defer f.Close()
					to = f
				}
				_, err = io.Copy(to, res.Body)
				if err == nil && res.StatusCode != http.StatusPartialContent {
					err = fmt.Errorf("the store answers %s", res.Status)
				}
				return err
			})
		}
	}
	return g.Wait()
}

// lazily mounts the volume, reads its file once, and returns how long the reading took. With check, what was read is
// compared with what was stored, which takes time.
func (p *platform) lazily(ctx context.Context, cache, dir, bin string, sum [32]byte, check bool) (took time.Duration,
	err error) {
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return 0, err
	}
	m := lazy.New(lazy.Config{Dir: filepath.Join(dir, "mounts"), Program: filepath.Join(bin, "muster-mount"),
		Server: p.serve})
	ref := agentapi.LeaseRef{Lease: "ls_bench", Epoch: 1}
	defer func() { err = errors.Join(err, m.Detach(context.Background(), ref), os.RemoveAll(cache)) }()
	m.Want(lazy.Wanted{Ref: ref, Cache: cache, Mount: agentapi.LazyMount{Path: "/data", Volume: "vol_bench",
		CacheBytes: 2 * size, Key: key}})
	for end := time.Now().Add(20 * time.Second); !m.State(ref, "vol_bench").Ready; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return 0, fmt.Errorf("the volume is not mounted: %+v", m.State(ref, "vol_bench"))
		}
	}
	f, err := os.Open(filepath.Join(m.Point(ref, "vol_bench"), "set"))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	h, n := sha256.New(), 0
	begun := time.Now()
	for b := make([]byte, 1<<20); ; {
		k, err := f.Read(b)
		if n += k; check {
			h.Write(b[:k])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return 0, err
		}
	}
	took = time.Since(begun)
	if n != size || check && [32]byte(h.Sum(nil)) != sum {
		err = errors.New("what was read is not what was stored")
	}
	return took, err
}
