package host

import "math/bits"

// Limits is a set of reasons for which a GPU's clocks are lower than it could run them. It names them by meaning, for
// the GPUs of every vendor. The values are stored.
type Limits uint16

const (
	LimitPower    Limits = 1 << iota // the power limit, which the load reaches
	LimitThermal                     // the driver keeps the GPU below its highest temperature
	LimitHot                         // the GPU's own protection from heat
	LimitBrake                       // the power brake: a signal of the power supply or the machine
	LimitHardware                    // the GPU's own protection, without saying from what
	LimitSetting                     // clocks that the operator has set
	LimitSync                        // the slowest GPU of a group that keeps in step
	LimitDisplay                     // clocks that a display needs
	LimitOther                       // a reason that this server does not know
)

// limits are the names of each bit: in the API, and in words.
var limits = []struct{ name, words string }{
	{"power_limit", "power limit"}, {"thermal", "temperature"}, {"hw_thermal", "hardware: too hot"},
	{"power_brake", "power brake"}, {"hw_slowdown", "hardware slowdown"}, {"clock_setting", "set by the operator"},
	{"sync_boost", "in step with other GPUs"}, {"display", "display"}, {"other", "other"},
}

// byWire are the limits by agentapi.GPUSample's names, which are NVML's. An idle GPU's low clocks are no limit.
var byWire = map[string]Limits{
	"gpu_idle": 0, "applications_clocks_setting": LimitSetting, "sw_power_cap": LimitPower, "hw_slowdown": LimitHardware,
	"sync_boost": LimitSync, "sw_thermal_slowdown": LimitThermal, "hw_thermal_slowdown": LimitHot,
	"hw_power_brake_slowdown": LimitBrake, "display_clock_setting": LimitDisplay,
}

// limitsOf converts the names that a host reported. NVML sets hw_slowdown in addition to the hardware's reason.
func limitsOf(names []string) (l Limits) {
	for _, n := range names {
		bit, known := byWire[n]
		if !known {
			bit = LimitOther
		}
		l |= bit
	}
	if l&(LimitHot|LimitBrake) != 0 {
		l &^= LimitHardware
	}
	return l
}

// Names returns the reasons as the API names them.
func (l Limits) Names() []string {
	out := make([]string, 0, bits.OnesCount16(uint16(l)))
	for i, x := range limits {
		if l&(1<<i) != 0 {
			out = append(out, x.name)
		}
	}
	return out
}

// Words returns the reasons for people.
func (l Limits) Words() []string {
	out := make([]string, 0, bits.OnesCount16(uint16(l)))
	for i, x := range limits {
		if l&(1<<i) != 0 {
			out = append(out, x.words)
		}
	}
	return out
}

// throttling are the limits that neither the load nor the operator's settings explain.
const throttling = LimitThermal | LimitHot | LimitBrake | LimitHardware | LimitOther
