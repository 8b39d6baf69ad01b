package fairness

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/musterhq/muster/internal/money"
)

var startRules = StartRules{Window: 6 * time.Hour, Free: 10_800, Reserve: StartReserve, MarketPPM: 250_000,
	MarketLeast: 16}

// perGPU is the price of a GPU-hour in these tests, micro-units: a GPU-second costs 0.001.
const perGPU = money.Micro(3_600_000)

func held(now, minutesAgo, gpuSeconds int64) HeldStart {
	ms := gpuSeconds * 1000
	return HeldStart{EndedMS: now - minutesAgo*60_000, GPUMillis: ms, Value: StartValue(perGPU, ms)}
}

func open(now, minutesAgo int64, gpus int) OpenStart {
	return OpenStart{SinceMS: now - minutesAgo*60_000, GPUs: gpus, Rate: perGPU * money.Micro(gpus)}
}

func TestStartQuota(t *testing.T) {
	t.Parallel()
	const now, min = int64(100_000_000), int64(60_000)
	for name, c := range map[string]struct {
		held        []HeldStart
		open        []OpenStart
		paid        money.Nano
		ok, covered bool
		free        int64 // ms from now
	}{
		"none":      {ok: true},
		"little":    {held: []HeldStart{held(now, 10, 600)}, ok: true},
		"all of it": {held: []HeldStart{held(now, 30, 10_800)}, free: 330 * min},
		"two, the older one is enough": {
			held: []HeldStart{held(now, 300, 6_000), held(now, 30, 6_000)}, free: 60 * min,
		},
		"a large one":        {held: []HeldStart{held(now, 359, 115_200)}, free: min},
		"long ago":           {held: []HeldStart{held(now, 360, 115_200)}, ok: true},
		"89 GPUs under way":  {open: []OpenStart{open(now, 0, 89)}, ok: true},
		"90 GPUs under way":  {open: []OpenStart{open(now, 0, 90)}, free: 360 * min},
		"6 for half an hour": {open: []OpenStart{open(now, 30, 6)}, free: 360 * min},
		"both": {
			held: []HeldStart{held(now, 30, 5_400)}, open: []OpenStart{open(now, 15, 6)}, free: 330 * min,
		},
		"paid for as much": {
			held: []HeldStart{held(now, 30, 36_000)}, paid: 37 * money.Unit, ok: true, covered: true,
		},
		"paid for as much, not for one more": {held: []HeldStart{held(now, 30, 36_000)}, paid: 36 * money.Unit, ok: true},
		"paid for less": {
			held: []HeldStart{held(now, 30, 36_000)}, paid: 35 * money.Unit, free: 330 * min,
		},
	} {
		v := startRules.Judge(StartFacts{Held: c.held, Open: c.open, Paid: c.paid}, perGPU, now)
		if v.OK != c.ok || v.Covered != c.covered || v.FreeMS != now+c.free {
			t.Errorf("%s: ok %t, covered %t, free in %d min, want %t, %t, %d", name, v.OK, v.Covered, (v.FreeMS-now)/min,
				c.ok, c.covered, c.free/min)
		}
	}
	if v := (StartRules{}).Judge(StartFacts{Held: []HeldStart{held(now, 1, 1e9)}}, perGPU, now); !v.OK || !v.Covered {
		t.Error("without a window starts are limited")
	}
}

// Whatever an organisation does, it holds for nothing at most half a GPU in the mean, beyond what it paid for and one
// start that is larger than that: the attacker starts what it can, for as long as it can, and pays for a part of it.
func TestStartQuota_MeanHeld(t *testing.T) {
	t.Parallel()
	const hour, days = int64(3_600_000), 5
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		largest, pays := 1+r.Int64N(64), r.Float64()
		var all []HeldStart
		var heldMS int64
		var paidAt []HeldStart
		for now := int64(0); now < days*24*hour; now += r.Int64N(hour / 4) {
			var paid, week money.Nano
			for _, p := range paidAt {
				if p.EndedMS > now-startRules.Window.Milliseconds() {
					paid += p.Value
				}
				week += p.Value
			}
			gpus := 1 + r.Int64N(largest)
			rate := perGPU * money.Micro(gpus)
			if !startRules.Judge(StartFacts{Held: all, Paid: startRules.Paid(paid, week)}, rate, now).OK {
				continue
			}
			ms := r.Int64N(hour / 2)
			now += ms
			heldMS += gpus * ms
			all = append(all, HeldStart{EndedMS: now, GPUMillis: gpus * ms, Value: StartValue(rate, ms)})
			if r.Float64() < pays {
				ran := r.Int64N(hour / 4)
				now += ran
				paidAt = append(paidAt, HeldStart{EndedMS: now, GPUMillis: gpus * ran, Value: StartValue(rate, ran)})
			}
		}
		var ranMS int64
		for _, p := range paidAt {
			ranMS += p.GPUMillis
		}
		windows := days*24*hour/startRules.Window.Milliseconds() + 1
		if most := windows*(startRules.Free*1000+largest*hour/2) + 2*ranMS; heldMS > most {
			t.Errorf("seed %d: %d GPU-seconds held with %d paid for, at most %d", seed, heldMS/1000, ranMS/1000, most/1000)
		}
	}
}

// An organisation shares the quota of its circle, and what the circle paid; but what it has paid for itself covers its
// own starts, whatever others hold.
func TestStartQuota_Circle(t *testing.T) {
	t.Parallel()
	const now = int64(100_000_000)
	all, own := []HeldStart{held(now, 30, 36_000)}, []HeldStart{held(now, 20, 600)}
	for name, c := range map[string]struct {
		own, circle StartFacts
		ok, covered bool
	}{
		"others hold too much":       {own: StartFacts{}, circle: StartFacts{Held: all}},
		"others hold and pay":        {circle: StartFacts{Held: all, Paid: 40 * money.Unit}, ok: true, covered: true},
		"others hold more than paid": {circle: StartFacts{Held: all, Paid: 30 * money.Unit}},
		"it pays for its own": {
			own:    StartFacts{Held: own, Paid: money.Unit},
			circle: StartFacts{Held: append(own, all...), Paid: money.Unit}, ok: true, covered: true,
		},
		"it pays for less than its own": {
			own:    StartFacts{Held: own, Paid: money.Unit / 2},
			circle: StartFacts{Held: append(own, all...), Paid: money.Unit / 2},
		},
	} {
		v := startRules.JudgeInCircle(c.own, c.circle, perGPU, now)
		if v.OK != c.ok || v.Covered != c.covered || v.OK != (v.FreeMS == now) {
			t.Errorf("%s: %+v", name, v)
		}
	}
}

func TestStartRoom(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ total, held, want int64 }{{0, 0, 16}, {0, 10, 6}, {64, 0, 16}, {1000, 0, 250},
		{1000, 240, 10}, {1000, 300, 0}, {1, 0, 1}, {1, 1, 0}, {8, 0, 4}, {15, 0, 8}, {8, 5, 0}} {
		if got := startRules.Room(c.total, c.held); got != c.want {
			t.Errorf("of %d, with %d held: %d, want %d", c.total, c.held, got, c.want)
		}
	}
	all := startRules
	all.MarketPPM = 1_000_000
	if all.Room(10, 10) < 1000 {
		t.Error("all of the market is limited")
	}
}

// What a slow host, or the platform, has to do with it does not count.
func TestStartCounts(t *testing.T) {
	t.Parallel()
	const min, gb = int64(60_000), int64(1e9)
	for name, c := range map[string]struct{ ms, deaf, image, want int64 }{
		"all of it":                           {20 * min, 0, 0, 20 * min},
		"the platform was away":               {20 * min, 5 * min, 0, 15 * min},
		"a known registry, a slow host":       {20 * min, 0, 3 * gb, 5 * min},
		"a known registry, a large image":     {20 * min, 0, 60 * gb, 20 * min},
		"a known registry, fast":              {2 * min, 0, 3 * gb, 2 * min},
		"the platform was away all the time":  {2 * min, 3 * min, 0, 0},
		"a known registry, and away a little": {20 * min, min, 3 * gb, 5 * min},
	} {
		if got := StartCounts(c.ms, c.deaf, c.image); got != c.want {
			t.Errorf("%s: %d ms, want %d", name, got, c.want)
		}
	}
}
