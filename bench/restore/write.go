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
	"time"

	"golang.org/x/sys/unix"

	"github.com/musterhq/muster/agent/scratch"
	"github.com/musterhq/muster/agent/volume"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/agentapi"
	"github.com/musterhq/muster/internal/id"
)

const (
	writeRounds = 5
	written     = 512 << 20 // by one round
)

// WriteRows writes a file to a volume and to a scratch, which is what a node has without volumes, in turns, and to the
// volume while a snapshot of it is uploaded.
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
	if err := errors.Join(os.Mkdir(disks, 0o700), s.Make(ctx, ref, 4),
		s.MakeVolume(ctx, ref, "vol_bench", 4<<30)); err != nil {
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
	var volumes, scratches, uploading []float64
	for round := range writeRounds + 1 { // the first one allocates the disk's blocks and is not counted
		a, err := writeFile(filepath.Join(scratch.Data(root), "f"), block, true)
		if err != nil {
			return nil, err
		}
		b, err := writeFile(filepath.Join(scratch.Data(s.Path(ref)), "f"), block, true)
		if err != nil {
			return nil, err
		}
		c, err := writeDuring(ctx, v, scratch.Data(root), round, block)
		if err != nil {
			return nil, err
		}
		if round > 0 {
			volumes, scratches, uploading = append(volumes, a), append(scratches, b), append(uploading, c)
		}
	}
	base := table.Median(scratches)
	row := func(name string, rates []float64, want string, least float64) table.Row {
		m := table.Median(rates)
		return table.Row{Goal: 13, Name: name, Unit: "MB/s", Ours: m, Baseline: base, BaselineName: "the node's scratch",
			Ratio: m / base, Want: want, Met: m/base >= least,
			Details: map[string]any{"ours": rates, "scratch": scratches, "bytes": written}}
	}
	return []table.Row{
		row("writing and syncing a file on a volume", volumes, "≥ 0.9", 0.9),
		row("the same while a snapshot is uploaded", uploading, "≥ 0.7", 0.7),
	}, nil
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
