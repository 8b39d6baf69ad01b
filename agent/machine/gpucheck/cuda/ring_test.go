package cuda

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/musterhq/muster/agent/machine/gpucheck"
)

// fakeGbps is what a link of the fake library carries.
const fakeGbps = 8

// ringOf returns a check of four GPUs with these faults.
func ringOf(t *testing.T, faults ...string) (gpucheck.Check, []string) {
	t.Helper()
	all := []string{gpuA, gpuB, gpuC, "GPU-9f1d1f0e-5d2c-4a0b-8d3c-0d8f6b7a1c22"}
	c := checkOf(t, all, faults...)
	c.GPUs = all
	c.Command = append(c.Command, "--work", "200ms") // they share the processors
	return c, all
}

// Each GPU sends to the next one at the rate of its link, all at the same time, and a slow link shows in one direction.
func TestEachGPUSendsToTheNext(t *testing.T) {
	c, all := ringOf(t, "slowlink "+gpuB+" "+gpuC)
	res, err := c.Run(t.Context())
	if err != nil || res.Failure != nil {
		t.Fatalf("%v, %+v", err, res.Failure)
	}
	for i, g := range res.GPUs {
		want := float64(fakeGbps)
		if g.UUID == gpuB {
			want /= 8
		}
		if g.Next != all[(i+1)%len(all)] || math.Abs(g.RingGbps-want) > 0.01*want {
			t.Errorf("%s sent %.2f Gbit/s to %s, want %.2f", g.UUID, g.RingGbps, g.Next, want)
		}
	}
}

// The order of a ring is one in which each GPU reaches the next. Without one, nothing is measured.
func TestRingsFollowDirectAccess(t *testing.T) {
	c, all := ringOf(t, "noaccess "+gpuA+" "+gpuB)
	res, err := c.Run(t.Context())
	if err != nil || res.Failure != nil {
		t.Fatalf("%v, %+v", err, res.Failure)
	}
	next := map[string]string{}
	for _, g := range res.GPUs {
		next[g.UUID] = g.Next
		if g.RingGbps <= 0 || !slices.Contains(g.Peers, g.Next) {
			t.Errorf("%s sent %.2f Gbit/s to %s", g.UUID, g.RingGbps, g.Next)
		}
	}
	seen, at := 1, next[all[0]]
	for ; at != all[0] && seen < len(all); at = next[at] {
		seen++
	}
	if at != all[0] || seen != len(all) {
		t.Errorf("not a ring: %v", next)
	}
	for name, faults := range map[string][]string{
		"none":         {"noaccess"},
		"a dead end":   {"noaccess " + gpuA + " " + gpuB, "noaccess " + gpuA + " " + gpuC},
		"not measured": nil,
	} {
		c, _ := ringOf(t, faults...)
		if faults == nil {
			c.Command = append(c.Command, "--ring=false")
		}
		res, err := c.Run(t.Context())
		if err != nil || res.Failure != nil {
			t.Errorf("%s: %v, %+v", name, err, res.Failure)
		}
		for _, g := range res.GPUs {
			if g.RingGbps != 0 || g.Next != "" {
				t.Errorf("%s: %s sent %.2f Gbit/s to %s", name, g.UUID, g.RingGbps, g.Next)
			}
		}
	}
}

// GPUs of different models are different offers, and have rings of their own.
func TestEachModelHasItsRing(t *testing.T) {
	c, all := ringOf(t, "model "+gpuB+" T4", "model "+gpuC+" A100", "model "+gpuA+" A100")
	res, err := c.Run(t.Context())
	if err != nil || res.Failure != nil {
		t.Fatalf("%v, %+v", err, res.Failure)
	}
	want := map[string]string{gpuA: gpuC, gpuC: gpuA, gpuB: "", all[3]: ""}
	for _, g := range res.GPUs {
		if g.Next != want[g.UUID] || (g.RingGbps > 0) != (g.Next != "") {
			t.Errorf("%s sent %.2f Gbit/s to %q, want %q", g.UUID, g.RingGbps, g.Next, want[g.UUID])
		}
	}
}

// What fails while all send is a failure of the GPUs at both ends.
func TestRingFailures(t *testing.T) {
	for fault, kind := range map[string]string{
		"error cuMemcpyPeerAsync 719 " + gpuB: gpucheck.KindCUDA,
		"error cuStreamCreate 2 " + gpuB:      gpucheck.KindCUDA,
		"wrong cuMemcpyPeerAsync " + gpuB:     gpucheck.KindWrong,
	} {
		res, err := checkOf(t, []string{gpuA, gpuB}, fault).Run(t.Context())
		if err != nil || res.Failure == nil {
			t.Errorf("%s: %v, %+v", fault, err, res)
			continue
		}
		if f := res.Failure; f.Kind != kind || !slices.Contains(f.GPUs, gpuB) || !strings.Contains(f.Step, "ring") {
			t.Errorf("%s: %+v", fault, f)
		}
	}
}
