package amd

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"sync"

	"github.com/musterhq/muster/agent/machine/gpu/wire"
)

// metrics is what is read of a GPU's table gpu_metrics: struct gpu_metrics_v1_* of the kernel's
// drivers/gpu/drm/amd/include/kgd_pp_interface.h. A field of ones only is one that the GPU does not have.
type metrics struct {
	energyMJ *int64
	known    bool   // whether the table has reasons of slow clocks, now or counted
	reasons  uint64 // of now, as bits of wire.Clocks…
	counted  bool   // whether it counts them instead
	cycles   uint32 // how often the power controller looked
	slowed   slowed // at how many of these looks something slowed the GPU down
}

// slowed are the counts of the looks at which the GPU was too hot by an external signal (PROCHOT), above its power
// limit, and too hot by its own sensors of the socket, the voltage regulators and the memory.
type slowed struct{ prochot, power, socket, regulators, memory uint32 }

// Bits of indep_throttle_status (SMU_THROTTLER_*_BIT of pm/swsmu/inc/amdgpu_smu.h): 0 to 7 are power limits, 32 to 45
// temperatures, and 46 and 47 PROCHOT of the processor and the GPU.
const (
	throttledByPower   = 0xff
	throttledByHeat    = (1<<46 - 1) &^ (1<<32 - 1)
	throttledByProchot = 1<<46 | 1<<47
)

// parseMetrics reads the tables of the MI200 and Radeons (1.3) and of the MI300 (1.4 and 1.6 to 1.8).
func parseMetrics(b []byte) (m metrics) {
	if len(b) < 4 || len(b) < int(binary.LittleEndian.Uint16(b)) || b[2] != 1 {
		return m
	}
	b = b[:binary.LittleEndian.Uint16(b)]
	switch content := b[3]; {
	case content == 3 && len(b) >= 120:
		if bits := binary.LittleEndian.Uint64(b[112:]); bits != math.MaxUint64 {
			m.known = true
			m.reasons = reasonsOf(bits&throttledByPower != 0, bits&throttledByHeat != 0, bits&throttledByProchot != 0)
		}
	case content == 4 && len(b) >= 40:
		m.energyMJ = energy(b[24:])
	case content == 6 && len(b) == 1664: // one of another size was in the kernel for a few days
		m.energyMJ = energy(b[16:])
		m.count(b[32:])
	case (content == 7 || content == 8) && len(b) >= 64:
		m.energyMJ = energy(b[24:])
		m.count(b[40:])
	}
	return m
}

// energy converts units of 2^-16 J.
func energy(b []byte) *int64 {
	n := binary.LittleEndian.Uint64(b)
	if n == math.MaxUint64 {
		return nil
	}
	mj := int64(n>>16)*1000 + int64(n&0xffff)*1000>>16
	return &mj
}

func (m *metrics) count(b []byte) {
	at := func(i int) uint32 {
		n := binary.LittleEndian.Uint32(b[4*i:])
		if n == math.MaxUint32 {
			return 0
		}
		return n
	}
	m.known, m.counted, m.cycles = true, true, at(0)
	m.slowed = slowed{at(1), at(2), at(3), at(4), at(5)}
}

func reasonsOf(power, heat, prochot bool) (bits uint64) {
	for bit, on := range map[uint64]bool{wire.ClocksSWPowerCap: power, wire.ClocksHWThermalSlowdown: heat,
		wire.ClocksHWSlowdown: prochot} {
		if on {
			bits |= bit
		}
	}
	return bits
}

// slowShare is the share of the power controller's looks, one of so many, from which on a reason counts as one: a GPU
// at the edge of a limit touches it now and then.
const slowShare = 10

// since returns the reasons that slowed the GPU down since the table was read before.
func (m metrics) since(before metrics) uint64 {
	if !m.counted {
		return m.reasons
	}
	looks := m.cycles - before.cycles // counts that wrapped around, too
	if !before.counted || looks == 0 || looks > math.MaxInt32 {
		return 0 // the first table, the same again, or counts that began again
	}
	often := func(now, before uint32) bool {
		n := now - before
		return n <= looks && n >= looks/slowShare && n > 0
	}
	s, b := m.slowed, before.slowed
	return reasonsOf(often(s.power, b.power),
		often(s.socket, b.socket) || often(s.regulators, b.regulators) || often(s.memory, b.memory),
		often(s.prochot, b.prochot))
}

// tables are the tables that were read last, by GPU.
type tables struct {
	mu   sync.Mutex
	last map[string]metrics
}

// clocks adds a GPU's energy and what slows it down to a sample.
func (v Vendor) clocks(dir string, s *wire.Sample) {
	b, err := os.ReadFile(filepath.Join(dir, "gpu_metrics"))
	if err != nil {
		return // GPUs before Vega have none
	}
	m := parseMetrics(b)
	s.EnergyMJ = m.energyMJ
	v.tables.mu.Lock()
	before := v.tables.last[s.GPU]
	v.tables.last[s.GPU] = m
	v.tables.mu.Unlock()
	if m.known {
		s.Clocks = wire.ClocksReasons(m.since(before))
	}
}
