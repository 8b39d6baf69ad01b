package restore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/storage/scratch"
	"github.com/musterhq/muster/agent/storage/volume"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

const (
	writeRounds  = 20
	written      = 128 << 20 // by one round
	duringRounds = 8
	diskGB       = 2 // of the volume, and of the scratch
)

// WriteRows writes a file to a volume and to a scratch, which is what a node has without volumes, in turns, and to the
// volume while a snapshot of it is uploaded. All blocks of both disks are allocated before. A ratio is that of two
// writes one after the other, in either order: what else the disk does changes both.
func WriteRows(ctx context.Context) (rows []table.Row, err error) {
	dir, err := os.MkdirTemp("", "muster-bench-write-")
	if err != nil {
		return nil, err
	}
	disks := filepath.Join(dir, "disks")
	s := scratch.New(disks, 0, "0be7c400")
	ref := agentapi.LeaseRef{Lease: id.New[id.Lease]().String(), Epoch: 1}
	defer func() {
		err = errors.Join(err, s.Sweep(func(agentapi.LeaseRef) bool { return false }), os.RemoveAll(dir))
	}()
	if err := errors.Join(os.Mkdir(disks, 0o700), s.Make(ctx, ref, diskGB),
		s.MakeVolume(ctx, ref, "vol_bench", diskGB<<30)); err != nil {
		return nil, err
	}
	root := s.VolumePath(ref, "vol_bench")
	p, end, err := newS3Platform(ctx, filepath.Join(dir, "store"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	v, err := volume.Open(ctx, volume.Config{
		Ref: ref, Root: root, Server: p.serve, HTTP: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}},
		Log: slog.New(slog.DiscardHandler), BootMS: func() int64 { return time.Now().UnixMilli() },
		Mount: agentapi.Mount{Path: "/data", Volume: "vol_bench", Mode: agentapi.MountRW, Key: key},
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, v.Close()) }()
	if err := v.Restore(ctx, nil); err != nil {
		return nil, err
	}
	block := make([]byte, 4<<20)
	_, _ = rand.NewChaCha8([32]byte{13}).Read(block)
	onVolume, onScratch := scratch.Data(root), scratch.Data(s.Path(ref))
	for _, dir := range []string{onVolume, onScratch} {
		if err := fill(filepath.Join(dir, "all"), block); err != nil {
			return nil, err
		}
	}
	write := func(dir string) func(int) (float64, error) {
		return func(int) (float64, error) { return writeFile(filepath.Join(dir, "f"), block, true) }
	}
	quiet, err := inPairs(writeRounds, write(onVolume), write(onScratch))
	if err != nil {
		return nil, err
	}
	busy, err := inPairs(duringRounds, func(round int) (float64, error) {
		return writeDuring(ctx, v, onVolume, round, block)
	}, write(onScratch))
	if err != nil {
		return nil, err
	}
	return []table.Row{
		quiet.row("writing and syncing a file on a volume", "≥ 0.9", 0.9),
		busy.row("the same while a snapshot is uploaded", "≥ 0.7", 0.7),
	}, nil
}

// paired is what rounds of two measurements gave, in MB/s.
type paired struct{ ours, base, ratios []float64 }

// inPairs measures ours and base one after the other, in either order. The first pair is not counted.
func inPairs(rounds int, ours, base func(round int) (float64, error)) (p paired, err error) {
	for round := range rounds + 1 {
		var a, b float64
		if round%2 == 0 {
			a, err = ours(round)
		}
		if err == nil {
			b, err = base(round)
		}
		if err == nil && round%2 != 0 {
			a, err = ours(round)
		}
		if err != nil {
			return p, err
		}
		if round > 0 {
			p.ours, p.base, p.ratios = append(p.ours, a), append(p.base, b), append(p.ratios, a/b)
		}
	}
	return p, nil
}

func (p paired) row(name, want string, least float64) table.Row {
	ratio := table.Median(slices.Clone(p.ratios))
	return table.Row{Goal: 13, Name: name, Unit: "MB/s", Ours: table.Median(slices.Clone(p.ours)),
		Baseline: table.Median(slices.Clone(p.base)), BaselineName: "the node's scratch", Ratio: ratio, Want: want,
		Met: ratio >= least, Details: map[string]any{"ours": p.ours, "scratch": p.base, "ratios": p.ratios, "bytes": written}}
}

// fill writes a file until the file system is full, syncs and removes it: the disk below has then allocated and written
// all of its blocks.
func fill(path string, block []byte) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for err == nil {
		_, err = f.Write(block)
	}
	if !errors.Is(err, unix.ENOSPC) {
		return errors.Join(err, f.Close())
	}
	return errors.Join(f.Sync(), f.Close(), os.Remove(path))
}

// writeFile writes a file, syncs it and removes it, and returns the rate in MB/s without the removal.
func writeFile(path string, block []byte, quiet bool) (rate float64, err error) {
	f, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	if quiet {
		unix.Sync() // what was written before does not slow this down
	}
	begun := time.Now()
	for n := 0; n < written && err == nil; n += len(block) {
		_, err = f.Write(block)
	}
	err = errors.Join(err, f.Sync())
	rate = written / 1e6 / time.Since(begun).Seconds()
	return rate, errors.Join(err, f.Close(), os.Remove(path))
}

// writeDuring is writeFile while a snapshot of new data is taken and uploaded, which must last longer.
func writeDuring(ctx context.Context, v *volume.Volume, dir string, round int, block []byte) (float64, error) {
	fresh := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{14, byte(round)}).Read(fresh)
	if err := os.WriteFile(filepath.Join(dir, "fresh"), fresh, 0o600); err != nil {
		return 0, err
	}
	done := make(chan error, 1)
	go func() {
		_, err := v.Snapshot(ctx, volume.Request{ID: fmt.Sprintf("snp_%d", round), Cause: agentapi.SnapshotByRequest})
		done <- err
	}()
	time.Sleep(200 * time.Millisecond) // the cut is over
	rate, err := writeFile(filepath.Join(dir, "f"), block, false)
	select {
	case early := <-done:
		if err = errors.Join(err, early); err == nil {
			err = errors.New("the upload ended before the file was written: choose a larger one")
		}
		return rate, err
	default:
	}
	return rate, errors.Join(err, <-done)
}
