package amd

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// table is a gpu_metrics of a size and revision, all of it unknown but for what is put into it.
func table(size int, content byte, put map[int]any) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = 0xff
	}
	binary.LittleEndian.PutUint16(b, uint16(size))
	b[2], b[3] = 1, content
	for at, v := range put {
		switch n := v.(type) {
		case uint32:
			binary.LittleEndian.PutUint32(b[at:], n)
		case uint64:
			binary.LittleEndian.PutUint64(b[at:], n)
		}
	}
	return b
}

// mi300 is a table of an MI300 that counts: energy, the looks, and PROCHOT, power, socket, regulators and memory.
func mi300(content byte, energy uint64, counts ...uint32) []byte {
	size, at := 2208, 40
	if content == 6 {
		size, at = 1664, 32
	}
	put := map[int]any{at - 16: energy}
	for i, n := range counts {
		put[at+4*i] = n
	}
	return table(size, content, put)
}

func TestReasonsOfSlowClocks(t *testing.T) {
	t.Parallel()
	const wrap = math.MaxUint32 - 99
	radeon := func(bits uint64) []byte { return table(120, 3, map[int]any{112: bits}) }
	for name, c := range map[string]struct {
		before, now []byte
		mj          int64 // 0 = not known
		want        []string
	}{
		"a Radeon at its power limit": {nil, radeon(1 << 0), 0, []string{"sw_power_cap"}},
		"a Radeon that is too hot":    {nil, radeon(1<<36 | 1<<2), 0, []string{"sw_power_cap", "hw_thermal_slowdown"}},
		"PROCHOT":                     {nil, radeon(1 << 47), 0, []string{"hw_slowdown"}},
		"a current limit":             {nil, radeon(1 << 16), 0, nil},
		"a Radeon that says nothing":  {nil, radeon(math.MaxUint64), 0, nil},
		"the first table":             {nil, mi300(7, 3<<16, 1000, 900, 900, 900, 900, 900), 3000, nil},
		"hot memory": {mi300(7, 0, 1000, 0, 0, 0, 0, 5), mi300(7, 1<<15, 2000, 0, 0, 0, 0, 205), 500,
			[]string{"hw_thermal_slowdown"}},
		"hot memory now and then": {mi300(7, 0, 1000, 0, 0, 0, 0, 5), mi300(7, 1<<16, 2000, 0, 0, 0, 0, 15), 1000, nil},
		"hot long ago":            {mi300(6, 0, 1000, 0, 0, 900, 0, 0), mi300(6, 1<<16, 2000, 0, 0, 900, 0, 0), 1000, nil},
		"version 1.6": {mi300(6, 0, 1000, 0, 0, 0, 0, 0), mi300(6, 1<<16, 2000, 400, 0, 0, 0, 0), 1000,
			[]string{"hw_slowdown"}},
		"counts that wrap around": {mi300(8, 0, wrap, 0, wrap, 0, 0, 0), mi300(8, 1<<16, 100, 0, 100, 0, 0, 0), 1000,
			[]string{"sw_power_cap"}},
		"counts that began again": {mi300(8, 0, 5000, 0, 4000, 0, 0, 0), mi300(8, 1<<16, 10, 0, 9, 0, 0, 0), 1000, nil},
		"the same table":          {mi300(8, 0, 5000, 0, 4000, 0, 0, 0), mi300(8, 1<<16, 5000, 0, 4000, 0, 0, 0), 1000, nil},
		"version 1.4":             {nil, table(300, 4, map[int]any{24: uint64(2 << 16)}), 2000, nil},
		"a version to come":       {nil, table(400, 30, map[int]any{24: uint64(2 << 16)}), 0, nil},
		"a processor's graphics":  {nil, []byte{5, 0, 2, 3, 0}, 0, nil},
		"cut short":               {nil, radeon(1)[:60], 0, nil},
		"empty":                   {nil, []byte{}, 0, nil},
	} {
		v, dir := New(t.TempDir()), t.TempDir()
		var s wire.Sample
		for _, b := range [][]byte{c.before, c.now} {
			if b == nil {
				continue
			}
			if err := os.WriteFile(filepath.Join(dir, "gpu_metrics"), b, 0o644); err != nil {
				t.Fatal(err)
			}
			s = wire.Sample{GPU: "AMD-1"}
			v.clocks(dir, &s)
		}
		if !slices.Equal(s.Clocks, c.want) {
			t.Errorf("%s: %q, want %q", name, s.Clocks, c.want)
		}
		if (s.EnergyMJ == nil) != (c.mj == 0) || s.EnergyMJ != nil && *s.EnergyMJ != c.mj {
			t.Errorf("%s: energy %v, want %d mJ", name, s.EnergyMJ, c.mj)
		}
	}
}
