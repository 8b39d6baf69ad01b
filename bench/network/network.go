// Package network measures goal 12: what the overlay carries compared with the same WireGuard alone, what a relay
// carries of it, whether the preflight's figures are those of iperf3 on the same path, and how long a lost rank is
// charged and missing.
//
// All but the last is between two machines of a test net, joined by virtual Ethernet and a bridge. On each stands one
// overlay process, as the agent starts it, and one process that is nothing but wireguard-go with its own sockets; both
// have their device in the same guest's namespace and the same MTU. iperf3 sends over one, then over the other.
package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/musterhq/muster/bench/table"
	"github.com/musterhq/muster/internal/testing/testnet"
)

const rounds = 5 // of each; they alternate

// Result holds every round, in Gbit/s.
type Result struct {
	MTU      int       `json:"mtu"`
	Ours     []float64 `json:"ours"`
	Bare     []float64 `json:"bare"`
	Relayed  []float64 `json:"relayed"`
	Pair     []float64 `json:"pair"`      // one way, by the preflight
	Ring     []float64 `json:"ring"`      // bus bandwidth of two ranks, by the preflight
	BothWays []float64 `json:"both_ways"` // by iperf3: both directions at once, the slower one
}

// Rows measures with the programs in bin.
func Rows(ctx context.Context, bin string) ([]table.Row, error) {
	if _, err := exec.LookPath("iperf3"); err != nil {
		return nil, errors.New("iperf3 is not installed: `scripts/setup bench` installs it")
	}
	dir, err := os.MkdirTemp("", "muster-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	return onBed(ctx, func(b *bed) (_ []table.Row, err error) {
		p, err := newPair(ctx, testnet.New(b), dir, filepath.Join(bin, "muster"))
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, p.end()) }()
		r, err := p.measure(ctx)
		if err != nil {
			return nil, err
		}
		return rows(r), nil
	})
}

// measure is the order of things.
func (p *pair) measure(ctx context.Context) (r Result, err error) {
	if r.MTU, err = p.settled(ctx, "lan"); err != nil {
		return r, err
	}
	if err := p.startBare(ctx, r.MTU); err != nil {
		return r, err
	}
	for range rounds {
		ours, err1 := p.iperf(ctx, ourAddress(1), false)
		bare, err2 := p.iperf(ctx, bareAddress(1), false)
		flight, err3 := p.preflight(ctx)
		both, err4 := p.iperf(ctx, ourAddress(1), true)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return r, err
		}
		r.Ours, r.Bare, r.BothWays = append(r.Ours, ours), append(r.Bare, bare), append(r.BothWays, both)
		r.Pair, r.Ring = append(r.Pair, flight.PairGbps[1]), append(r.Ring, flight.BusbwGbps)
	}
	p.hosts[0].Run("nft", fmt.Sprintf("table ip wall { chain out { type filter hook output priority 0; ip daddr %s "+
		"drop; }; chain in { type filter hook input priority 0; ip saddr %s drop; }; }", at(1), at(1)))
	if _, err := p.settled(ctx, "relay"); err != nil {
		return r, err
	}
	for range rounds {
		v, err := p.iperf(ctx, ourAddress(1), false)
		if err != nil {
			return r, err
		}
		r.Relayed = append(r.Relayed, v)
	}
	return r, nil
}

func rows(r Result) []table.Row {
	ours, bare, relayed := table.Median(r.Ours), table.Median(r.Bare), table.Median(r.Relayed)
	pair, ring, both := table.Median(r.Pair), table.Median(r.Ring), table.Median(r.BothWays)
	row := func(name string, ours, baseline float64, beside string) table.Row {
		return table.Row{
			Goal:         12,
			Name:         name,
			Unit:         "Gbit/s",
			Ours:         ours,
			Baseline:     baseline,
			BaselineName: beside,
			Ratio:        ours / baseline,
		}
	}
	first := row(fmt.Sprintf("the overlay's throughput, MTU %d", r.MTU), ours, bare, "the same WireGuard without us")
	first.Want, first.Met, first.Details = "≥ 0.95", ours >= 0.95*bare, r
	return []table.Row{first,
		row("the same through a relay", relayed, ours, "straight"),
		row("the preflight's figure of a pair", pair, ours, "iperf3 on the same path"),
		row("the preflight's busbw, 2 ranks", ring, both, "iperf3 both ways at once, the slower"),
	}
}

// patience is for what has to come; only a failure takes so long.
const patience = 5 * time.Minute

// await polls until ok says so.
func await(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		done, err := ok()
		if done {
			return nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("%s: %w", what, ctx.Err()), err)
		}
	}
}
