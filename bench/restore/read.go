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
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/lazy"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume"
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
// versitygw on this machine, which shares the processors with both. The processor time, which other programs on the
// machine change less, is that of the client alone: without the store's.
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
	timed := func(f func() error) func(int) (cost, error) {
		return func(int) (cost, error) {
			begun := spent()
			err := f()
			return spent().since(begun), errors.Join(err, os.RemoveAll(files))
		}
	}
	measures := []func(round int) (cost, error){
		timed(func() error { return p.restoreOnce(ctx, files) }),
		timed(func() error { return p.bare(ctx, restoreStreams, 16<<20, files) }),
		timed(func() error { return p.bare(ctx, restoreStreams, 16<<20, "") }),
		func(round int) (cost, error) {
			return p.lazily(ctx, filepath.Join(disk, "cache"), dir, bin, sum, round == 0)
		},
		timed(func() error { return p.bare(ctx, lazyStreams, lazyRange, "") }),
		timed(func() error { return p.bare(ctx, 1, lazyRange, "") }),
	}
	rates, cpus := make([][]float64, len(measures)), make([][]float64, len(measures))
	for round := range readRounds + 1 { // the first one allocates the disk's blocks and is not counted
		for i, f := range measures {
			if err := os.WriteFile("/proc/sys/vm/drop_caches", []byte("1"), 0); err != nil {
				return nil, err
			}
			c, err := f(round)
			if err != nil {
				return nil, err
			}
			if round > 0 {
				rates[i] = append(rates[i], size/1e6/c.wall.Seconds())
				cpus[i] = append(cpus[i], c.cpu.Seconds()*(128<<20)/size)
			}
		}
	}
	row := func(name string, ours, bare int, beside, want string, least float64) table.Row {
		a, b := table.Median(slices.Clone(rates[ours])), table.Median(slices.Clone(rates[bare]))
		return table.Row{Goal: 14, Name: name, Unit: "MB/s", Ours: a, Baseline: b, BaselineName: beside, Ratio: a / b,
			Want: want, Met: want != "" && a/b >= least,
			Details: map[string]any{"ours": rates[ours], "baseline": rates[bare], "bytes": size}}
	}
	cpu := func(ours, bare int, beside string) table.Row {
		a, b := table.Median(slices.Clone(cpus[ours])), table.Median(slices.Clone(cpus[bare]))
		return table.Row{Goal: 14, Name: "the same, processor time for 128 MiB", Unit: "s", Ours: a, Baseline: b,
			BaselineName: beside, Ratio: a / b, Details: map[string]any{"ours": cpus[ours], "baseline": cpus[bare]}}
	}
	return []table.Row{
		row("restore of a volume", 0, 1, "a bare client, 3 streams, into files", "≥ 0.75", 0.75),
		row("the same", 0, 2, "a bare client, 3 streams", "", 0),
		cpu(0, 1, "a bare client, 3 streams, into files"),
		row("a lazy volume read in order", 3, 4, "a bare client, 8 streams", "≥ 0.6", 0.6),
		row("the same", 3, 5, "a bare client, 1 stream", "", 0),
		cpu(3, 4, "a bare client, 8 streams"),
	}, nil
}

// cost is what something took: time, and processor time of this process and of the one that mounts.
type cost struct{ wall, cpu time.Duration }

func spent() cost {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u) // it never fails
	return cost{time.Duration(time.Now().UnixNano()), time.Duration(u.Utime.Nano() + u.Stime.Nano())}
}

func (c cost) since(begun cost) cost { return cost{c.wall - begun.wall, c.cpu - begun.cpu} }

// spentBy returns the processor time of a process, to a hundredth of a second.
func spentBy(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	text := string(b)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	user, err := strconv.ParseInt(f[11], 10, 64)
	if err != nil {
		return 0, err
	}
	system, err := strconv.ParseInt(f[12], 10, 64)
	const tick = 10 * time.Millisecond // USER_HZ is 100 on all of Linux' ports that Muster runs on
	return time.Duration(user+system) * tick, err
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
func (p *platform) lazily(ctx context.Context, cache, dir, bin string, sum [32]byte, check bool) (c cost,
	err error) {
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return c, err
	}
	m := lazy.New(lazy.Config{Dir: filepath.Join(dir, "mounts"), Program: filepath.Join(bin, "muster-mount"),
		Server: p.serve})
	ref := agentapi.LeaseRef{Lease: "ls_bench", Epoch: 1}
	defer func() { err = errors.Join(err, m.Detach(context.Background(), ref), os.RemoveAll(cache)) }()
	m.Want(lazy.Wanted{Ref: ref, Cache: cache, Mount: agentapi.LazyMount{Path: "/data", Volume: "vol_bench",
		CacheBytes: 2 * size, Key: key}})
	for end := time.Now().Add(20 * time.Second); !m.State(ref, "vol_bench").Ready; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			return c, fmt.Errorf("the volume is not mounted: %+v", m.State(ref, "vol_bench"))
		}
	}
	f, err := os.Open(filepath.Join(m.Point(ref, "vol_bench"), "set"))
	if err != nil {
		return c, err
	}
	defer f.Close()
	pid, ok := m.PID(ref, "vol_bench")
	if !ok {
		return c, errors.New("the process of the mount has ended")
	}
	before, err := spentBy(pid)
	if err != nil {
		return c, err
	}
	h, n := sha256.New(), 0
	begun := spent()
	for b := make([]byte, 1<<20); ; {
		k, err := f.Read(b)
		if n += k; check {
			h.Write(b[:k])
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return c, err
		}
	}
	c = spent().since(begun)
	after, err := spentBy(pid)
	if err != nil {
		return c, err
	}
	c.cpu += after - before
	if n != size || check && [32]byte(h.Sum(nil)) != sum {
		err = errors.New("what was read is not what was stored")
	}
	return c, err
}
