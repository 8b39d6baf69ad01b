// Package restore measures volumes: writing to them, restoring them, reading them on demand, and what many ranks that
// restore one volume request from the store.
package restore

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/musterhq/muster/agent/net/peers"
	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/data/chunk"
)

const (
	ranks  = 8
	size   = 256 << 20 // of the volume's only file
	rounds = 3
	// line is what the store sends in a second: about 2 Gbit/s.
	line = 250 << 20
)

// round is what one restore by all ranks took.
type round struct {
	Seconds float64 `json:"seconds"`
	Served  int64   `json:"served"` // bytes, by the store
}

// Rows restores one volume for eight ranks at the same time, with peers and without, in turns. The store has a line of
// its own; the ranks exchange packs over loopback and share this machine's processors, so that the time compares work,
// not networks.
func Rows(ctx context.Context) (rows []table.Row, err error) {
	dir, err := os.MkdirTemp("", "muster-bench-restore-")
	if err != nil {
		return nil, err
	}
	disk, unmount, err := mount(ctx, dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { err = errors.Join(err, unmount(), os.RemoveAll(dir)) }()
	p, err := newPlatform(filepath.Join(dir, "store"))
	if err != nil {
		return nil, err
	}
	defer p.close()
	sum, err := p.fill(ctx, filepath.Join(disk, "writer"))
	if err != nil {
		return nil, err
	}
	// The first restore allocates the disk's blocks and is not measured.
	if _, err := p.restore(ctx, filepath.Join(disk, "ranks"), false, sum); err != nil {
		return nil, err
	}
	var ours, bare []round
	for i := range rounds {
		for _, with := range []bool{i%2 == 0, i%2 != 0} {
			r, err := p.restore(ctx, filepath.Join(disk, "ranks"), with, sum)
			if err != nil {
				return nil, err
			}
			if with {
				ours = append(ours, r)
			} else {
				bare = append(bare, r)
			}
		}
	}
	of := func(rs []round, f func(round) float64) float64 {
		var all []float64
		for _, r := range rs {
			all = append(all, f(r))
		}
		return table.Median(all)
	}
	served := func(r round) float64 { return float64(r.Served) / size }
	seconds := func(r round) float64 { return r.Seconds }
	details := map[string]any{"peers": ours, "store_alone": bare, "ranks": ranks, "bytes": size, "line": line}
	return []table.Row{
		{Goal: 15, Name: fmt.Sprintf("bytes of the store, %d ranks restore one volume", ranks), Unit: "volumes",
			Ours: of(ours, served), Baseline: of(bare, served), BaselineName: "each from the store",
			Ratio: of(ours, served) / of(bare, served), Want: "≤ 1.3 volumes", Met: of(ours, served) <= 1.3,
			Details: details},
		{Goal: 15, Name: "the same, time until all have restored", Unit: "s",
			Ours: of(ours, seconds), Baseline: of(bare, seconds), BaselineName: "each from the store",
			Ratio: of(ours, seconds) / of(bare, seconds)},
	}, nil
}

// fill commits a volume with one file that cannot be compressed, and returns the file's hash.
func (p *platform) fill(ctx context.Context, root string) (sum [32]byte, err error) {
	if err := os.MkdirAll(scratch.Data(root), 0o755); err != nil {
		return sum, err
	}
	b := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(b)
	if err := os.WriteFile(filepath.Join(scratch.Data(root), "set"), b, 0o644); err != nil {
		return sum, err
	}
	v, err := volume.Open(ctx, p.config(root, 0))
	if err != nil {
		return sum, err
	}
	defer v.Close()
	if err := v.Restore(ctx, nil); err != nil {
		return sum, err
	}
	_, err = v.Snapshot(ctx, volume.Request{ID: "snp_1", Cause: agentapi.SnapshotByRequest})
	return sha256.Sum256(b), errors.Join(err, os.RemoveAll(root))
}

func (p *platform) config(root string, rank int) volume.Config {
	return volume.Config{
		Ref: agentapi.LeaseRef{Lease: fmt.Sprintf("ls_%d", rank), Epoch: 1}, Root: root, Server: p.serve,
		HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}, Log: slog.New(slog.DiscardHandler),
		BootMS: func() int64 { return time.Now().UnixMilli() },
		Mount:  agentapi.Mount{Path: "/data", Volume: "vol_bench", Mode: agentapi.MountRO, Key: key},
	}
}

// restore restores the volume for all ranks at once, and checks what they have.
func (p *platform) restore(ctx context.Context, dir string, with bool, sum [32]byte) (r round, err error) {
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	keys, err := chunk.NewKeys(key)
	if err != nil {
		return r, err
	}
	var c peers.Cluster
	for i := range ranks {
		c.Ranks = append(c.Ranks, peers.Rank{Rank: i, Address: fmt.Sprintf("127.0.15.%d", i+1)})
	}
	var vs []*volume.Volume
	for i := range ranks {
		root := filepath.Join(dir, fmt.Sprint(i))
		if err := os.MkdirAll(scratch.Data(root), 0o755); err != nil {
			return r, err
		}
		cfg := p.config(root, i)
		if with {
			c.Rank = i
			s := peers.NewServer(c, cfg.Log)
			defer s.Close()
			cfg.Peers = s.Join(cfg.Mount.Volume, keys, cfg.Log)
			defer cfg.Peers.Close()
		}
		v, err := volume.Open(ctx, cfg)
		if err != nil {
			return r, err
		}
		defer v.Close()
		vs = append(vs, v)
	}
	before, begun := p.served.Load(), time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for _, v := range vs {
		g.Go(func() error { return v.Restore(ctx, nil) })
	}
	if err := g.Wait(); err != nil {
		return r, err
	}
	r = round{Seconds: time.Since(begun).Seconds(), Served: p.served.Load() - before}
	for i := range ranks {
		b, err := os.ReadFile(filepath.Join(scratch.Data(filepath.Join(dir, fmt.Sprint(i))), "set"))
		if err != nil || sha256.Sum256(b) != sum {
			return r, fmt.Errorf("rank %d has not what was stored: %w", i, err)
		}
	}
	return r, nil
}
