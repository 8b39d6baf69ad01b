// Package start measures goal 9: from the request to a cluster that runs, compared with the same steps scripted by
// hand, and how much of it is the control plane's own.
//
// All of it is on one `muster dev`: its own PostgreSQL, a server, two hosts that are real agents on this machine's
// Docker. Ours is a rent over REST of two nodes until the cluster is `running`. The script takes the same steps through
// the same packages on the same Docker: image look-up, lease files, firewall, guest, overlay, keys exchanged, preflight
// of both ranks, workload up to its barrier, release, started; both ranks at once, waiting for nothing but the steps
// themselves. (The agent brings the workload to its barrier during the preflight, the script after it.) The image is
// there before. The control plane's own share is the same rent on two hosts that do each step in no time and speak as
// an agent does: what is left is accepting, placing, committing, waking, reporting and deciding.
package start

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/musterhq/muster/bench/platform"
	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/client"
)

const (
	rounds  = 7   // of each; they alternate
	instant = 104 // rents on hosts that take no time
	nodes   = 2
)

// Result holds every round, in nanoseconds.
type Result struct {
	Ours   []time.Duration `json:"ours_ns"`
	Script []time.Duration `json:"script_ns"`
	// Share is a cluster's way to running on hosts that take no time.
	Share  platform.Run `json:"share"`
	Accept platform.Run `json:"accept"` // the part of it until the 202
}

// Rows measures with the programs in bin.
func Rows(ctx context.Context, bin string) (_ []table.Row, err error) {
	dir, err := os.MkdirTemp("/var/tmp", "muster-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o711); err != nil { // PostgreSQL's user has to get through
		return nil, err
	}
	s, err := begin(ctx, bin, dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		if end := s.end(); err == nil {
			err = end
		}
	}()
	var r Result
	if r.Share, r.Accept, err = s.share(ctx, instant); err != nil {
		return nil, fmt.Errorf("the control plane's share: %w", err)
	}
	byHand, err := newScript(s, nodes)
	if err != nil {
		return nil, err
	}
	defer byHand.close()
	for round := range rounds + 1 {
		ours, err := s.rent(ctx, "h100", s.spec("gpu_model=H100"))
		if err != nil {
			return nil, fmt.Errorf("ours: %w", err)
		}
		script, err := byHand.run(ctx)
		if err != nil {
			return nil, fmt.Errorf("script: %w", err)
		}
		if round > 0 { // the first brings the image and the base image
			r.Ours, r.Script = append(r.Ours, ours.running), append(r.Script, script)
		}
	}
	return rows(r), nil
}

func rows(r Result) []table.Row {
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	median := func(all []time.Duration) float64 {
		v := make([]float64, len(all))
		for i, d := range all {
			v[i] = ms(d)
		}
		return table.Median(v)
	}
	ours, script := median(r.Ours), median(r.Script)
	return []table.Row{
		{
			Goal:         9,
			Name:         "request to running, 2 nodes, image cached",
			Unit:         "ms",
			Ours:         ours,
			Baseline:     script,
			BaselineName: "same steps by a script",
			Ratio:        ours / script,
			Want:         "≤ 1.10",
			Met:          ours <= 1.1*script,
			Details:      r,
		},
		{
			Goal:         9,
			Name:         "control plane's own share, p99",
			Unit:         "ms",
			Ours:         ms(r.Share.P99),
			Baseline:     ms(r.Share.P50),
			BaselineName: "its p50",
			Ratio:        ms(r.Share.P99) / ms(r.Share.P50),
			Want:         "≤ 50 ms",
			Met:          r.Share.P99 <= 50*time.Millisecond,
		},
		{
			Goal:         9,
			Name:         "the part of it until the 202, p99",
			Unit:         "ms",
			Ours:         ms(r.Accept.P99),
			Baseline:     ms(r.Accept.P50),
			BaselineName: "its p50",
			Ratio:        ms(r.Accept.P99) / ms(r.Accept.P50),
		},
	}
}

// spec is a small cluster on hosts that match the query.
func (s *stack) spec(gpu string) client.Spec {
	return client.Spec{
		Nodes:       nodes,
		GPUsPerNode: 1,
		GPU:         gpu,
		Image:       s.info.DemoImage,
		Command:     []string{"train"},
		DiskGB:      1,
		Env:         map[string]string{"TRAIN_STEPS": "100000"},
	}
}
